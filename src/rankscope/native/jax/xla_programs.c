/* Compiled programs of XLA: how often each is started, and which of them is the step. */
#include <stdio.h>

#include "steps.h"
#include "xla.h"

#define PLACES 8192u            /* a power of two; executables alive at a time fill at most half of them */
#define NAMES 2048u
#define LONGEST_NAME 120

#define NEVER_USED 0u
#define DELETED 1u              /* no address */

/* One loaded executable, by its address. */
struct rs_xla_program {
    uint64_t executable;
    uint64_t carried_bytes;     /* of its results: as large as arguments, so that it may be called with them again */
    uint32_t hash;              /* of the name */
    uint16_t name;
};

static rs_lock lock;
static struct rs_xla_program *programs;
static uint32_t programs_used;
static struct { uint32_t hash; uint64_t carried_bytes; } *compiled;     /* by name, as the program was compiled last */
static uint32_t step_hash;
static uint64_t step_carried_bytes;

void rs_xla_programs_forget(void)
{
    rs_memory_free(programs, PLACES * sizeof *programs);
    rs_memory_free(compiled, NAMES * sizeof *compiled);
    programs = NULL;
    compiled = NULL;
    programs_used = step_hash = 0;
    step_carried_bytes = 0;
}

static struct rs_xla_program *place_of(uint64_t executable)
{
    uint32_t at = (uint32_t)((executable * 0x9E3779B97F4A7C15u) >> 51) & (PLACES - 1);
    for (uint32_t looked = 0; programs && looked < PLACES; looked++, at = (at + 1) & (PLACES - 1)) {
        uint64_t there = __atomic_load_n(&programs[at].executable, __ATOMIC_ACQUIRE);
        if (there == executable)
            return &programs[at];
        if (there == NEVER_USED)
            return NULL;
    }
    return NULL;
}

struct rs_xla_program *rs_xla_program_of(uint64_t executable) { return place_of(executable); }

static uint32_t compiled_place(uint32_t hash)
{
    uint32_t at = hash & (NAMES - 1);
    for (uint32_t looked = 0; looked < NAMES && compiled[at].hash && compiled[at].hash != hash; looked++)
        at = (at + 1) & (NAMES - 1);
    return at;
}

static void add(uint64_t executable, const char *name)
{
    uint32_t at = (uint32_t)((executable * 0x9E3779B97F4A7C15u) >> 51) & (PLACES - 1);
    while (programs[at].executable > DELETED)
        at = (at + 1) & (PLACES - 1);
    struct rs_xla_program *program = &programs[at];
    char shown[LONGEST_NAME + 8];
    snprintf(shown, sizeof shown, "run %s", name);
    program->hash = rs_hash(name) | 1;
    program->name = rs_intern(shown);
    uint32_t place = compiled ? compiled_place(program->hash) : 0;
    program->carried_bytes = compiled && compiled[place].hash == program->hash ? compiled[place].carried_bytes : 0;
    programs_used += program->executable == NEVER_USED;
    __atomic_store_n(&program->executable, executable, __ATOMIC_RELEASE);
}

/* An executable that has not been seen before. */
struct rs_xla_program *rs_xla_program_named(uint64_t executable, const char *name, size_t length)
{
    char text[LONGEST_NAME + 1];
    length = length < LONGEST_NAME ? length : LONGEST_NAME;
    memcpy(text, name, length);
    text[length] = 0;
    if (!rs_telling() || !rs_lock_take(&lock))
        return NULL;
    if (!programs)
        programs = rs_memory(PLACES * sizeof *programs);
    if (programs && programs_used < PLACES / 2 && !place_of(executable))
        add(executable, text);
    rs_lock_give(&lock);
    return place_of(executable);
}

void rs_xla_program_deleted(uint64_t executable)
{
    if (!programs || !rs_lock_take(&lock))
        return;
    struct rs_xla_program *program = place_of(executable);
    if (program)
        __atomic_store_n(&program->executable, DELETED, __ATOMIC_RELEASE);
    rs_lock_give(&lock);
}

/* A training step gives back the state of the model, to be called with it again: of all programs the one that gives
 * back most is the step, by whatever executables of its name. */
static int ends_step(const struct rs_xla_program *program)
{
    if (!program->carried_bytes)
        return 0;
    if (program->carried_bytes > step_carried_bytes) {
        step_carried_bytes = program->carried_bytes;
        step_hash = program->hash;
    }
    return program->hash == step_hash && 2 * program->carried_bytes >= step_carried_bytes;
}

int rs_xla_program_begins(struct rs_xla_program *program, uint64_t now)
{
    int is_step = ends_step(program);
    if (is_step)
        rs_step_program_begins(now);
    return is_step;
}

/* The program's thread has started it, from `begin` to `end`; it may still run. */
void rs_xla_program_started(struct rs_xla_program *program, int is_step, uint64_t begin, uint64_t end)
{
    struct rs_thread *thread = rs_enter();
    if (thread) {
        rs_tally(thread, rs_key(program->name, 0, RS_LAYER_JAX, rs.phase, 0, RS_KIND_CALL), end - begin, 0, 0);
        rs_leave(thread, end);
    }
    if (is_step)
        rs_step_program_ended(end);
}

/* For Python, before the executable is called the first time. */
RS_EXPORT void rankscope_program_compiled(const char *name, uint64_t carried_bytes)
{
    uint32_t hash = rs_hash(name) | 1;
    if (!rs_telling() || !rs_lock_take(&lock))
        return;
    if (!compiled)
        compiled = rs_memory(NAMES * sizeof *compiled);
    uint32_t at = compiled ? compiled_place(hash) : 0;
    if (compiled && (!compiled[at].hash || compiled[at].hash == hash)) {
        compiled[at].hash = hash;
        compiled[at].carried_bytes = carried_bytes;
    }
    rs_lock_give(&lock);
}

/* What jax.distributed.initialize was told, where no launcher has said it. */
RS_EXPORT void rankscope_jax_rank(int32_t process_id, int32_t processes)
{
    if (!rs_telling() || rs.file->rank_source != RS_RANK_NONE)
        return;
    rs.file->world_size = processes;
    rs.file->rank_source = RS_RANK_JAX;
    __atomic_store_n(&rs.file->rank, process_id, __ATOMIC_RELEASE);
}

static uint64_t ticks_in(double seconds)
{
    struct rs_anchor now = rs_anchor_now(), *then = &rs.file->loaded;
    double ticks_per_ns = (double)(now.ticks - then->ticks) / (double)(now.monotonic_ns - then->monotonic_ns + 1);
    return seconds > 0 ? (uint64_t)(seconds * 1e9 * ticks_per_ns) : 0;
}

static void tally(uint8_t layer, const char *name, uint64_t ticks, uint64_t bytes)
{
    struct rs_thread *thread = rs_enter();
    if (!thread)
        return;
    rs_tally(thread, rs_key(rs_intern(name), 0, layer, rs.phase, 0, RS_KIND_CALL), ticks, bytes, 0);
    rs_leave(thread, rs_ticks());
}

/* For Python: JAX says how long something took that has just ended. */
RS_EXPORT void rankscope_jax_took(const char *name, double seconds, uint64_t bytes)
{
    if (rs_telling())
        tally(RS_LAYER_JAX, name, ticks_in(seconds), bytes);
}

/* The same of torch, of a graph that it has compiled. */
RS_EXPORT void rankscope_graph_compiled(const char *name, double seconds)
{
    if (rs_telling())
        tally(RS_LAYER_TORCH, name, ticks_in(seconds), 0);
}

/* For Python, around a wait for results: in steps it is time of their programs. */
RS_EXPORT uint64_t rankscope_jax_wait(void)
{
    uint64_t now = rs_ticks();
    if (rs_step_open)
        rs_part_enter(RS_PART_COMPUTE, now);
    return now;
}

RS_EXPORT void rankscope_jax_waited(const char *name, uint64_t begin, uint64_t bytes)
{
    uint64_t now = rs_ticks();
    if (rs_step_open)
        rs_part_leave(RS_PART_COMPUTE, now);
    tally(RS_LAYER_JAX, name, now - begin, bytes);
}
