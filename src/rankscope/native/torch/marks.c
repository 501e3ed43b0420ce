/* Where one phase ends and the next begins. */
#include "steps.h"

static rs_lock lock;
static struct rs_chunk *rows;
static uint32_t seen;           /* a bit per kind */

void rs_marks_forget(void)
{
    rows = NULL;
    seen = 0;
}

static void write_row(uint16_t kind, const char *name, uint64_t ticks)
{
    const struct rs_chunk like = {.kind = RS_CHUNK_MARKS, .row_bytes = sizeof(struct rs_mark), .chunk_bytes = RS_PAGE};
    struct rs_mark *row = rs_row_place(&rows, like, sizeof *row);
    if (!row)
        return;
    row->ticks = ticks;
    row->kind = kind;
    row->name = rs_intern(name);
    rs_row_publish(rows, 1);
}

void rs_mark_at(uint16_t kind, const char *name, uint64_t ticks)
{
    uint32_t bit = 1u << kind;
    if (!rs.file || kind > RS_MARK_XLA || __atomic_fetch_or(&seen, bit, __ATOMIC_RELAXED) & bit)
        return;
    if (!rs_lock_take(&lock))
        return;
    write_row(kind, name ? name : "", ticks);
    rs_lock_give(&lock);
}

static uint64_t ticks_of(uint64_t monotonic_ns)
{
    struct rs_anchor now = rs_anchor_now(), *then = &rs.file->loaded;
    double rate = (double)(now.ticks - then->ticks) / (double)(now.monotonic_ns - then->monotonic_ns + 1);
    return now.ticks - (uint64_t)((double)(now.monotonic_ns - monotonic_ns) * rate);
}

/* What a mark says of the phase: a program may do things in another order, and a phase is not entered twice. */
static void move_phase(uint32_t kind)
{
    uint8_t phase = __atomic_load_n(&rs.phase, __ATOMIC_RELAXED);
    if (kind == RS_MARK_IMPORT_BEGIN && phase == RS_PHASE_START)
        rs_set_phase(RS_PHASE_IMPORTS);
    if (kind == RS_MARK_INIT_BEGIN && phase < RS_PHASE_INIT)
        rs_set_phase(RS_PHASE_INIT);
    if (kind == RS_MARK_INIT_END && phase == RS_PHASE_INIT)
        rs_set_phase(RS_PHASE_FIRST_COLLECTIVE);
    if (kind == RS_MARK_FINALIZE)
        rs_set_phase(RS_PHASE_FINALIZE);
}

/* For Python: a moment that may lie back (0: now), in nanoseconds of CLOCK_MONOTONIC. */
RS_EXPORT void rankscope_mark(uint32_t kind, const char *name, uint64_t monotonic_ns)
{
    if (!rs_telling())
        return;
    rs_mark_at((uint16_t)kind, name, monotonic_ns ? ticks_of(monotonic_ns) : rs_ticks());
    move_phase(kind);
}
