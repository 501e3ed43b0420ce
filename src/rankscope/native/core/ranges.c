/* Named ranges: a tally for each name, and the part of a step that a name stands for. */
#include "steps.h"

#define NAME_SLOTS 8192u
#define MOST_NAMES 2048u        /* a name that counts something ("step 17") must not fill the file */
#define FOLDED "(ranges of other names)"

struct range_name {
    const char *text;           /* lies in the file; stored last */
    uint32_t hash;
    uint16_t id;
    uint8_t part;
};

static struct range_name *names;
static uint32_t names_used;
static rs_lock lock;

static const struct { const char *prefix; uint8_t part, whole; } known_parts[] = {
    {"enumerate(DataLoader)#", RS_PART_DATA, 0},
    {"enumerate(DataPipe)#", RS_PART_DATA, 0},
    {"Optimizer.step#", RS_PART_OPTIMIZER, 0},
    {"Optimizer.zero_grad#", RS_PART_ZERO_GRAD, 0},
    {"DistributedDataParallel.forward", RS_PART_FORWARD, 1},
    {"DataParallel.forward", RS_PART_FORWARD, 1},
    {"FullyShardedDataParallel.forward", RS_PART_FORWARD, 1},
    {"torch.autograd.backward", RS_PART_BACKWARD, 1},
    {"DeepSpeedEngine.backward", RS_PART_BACKWARD, 1},
    {"DeepSpeedEngine.step", RS_PART_OPTIMIZER, 1},
    {"torch.save", RS_PART_CHECKPOINT, 1},
    {"torch.distributed.checkpoint.save", RS_PART_CHECKPOINT, 0},
    {"data", RS_PART_DATA, 1},
    {"zero_grad", RS_PART_ZERO_GRAD, 1},
    {"forward", RS_PART_FORWARD, 1},
    {"backward", RS_PART_BACKWARD, 1},
    {"optimizer", RS_PART_OPTIMIZER, 1},
    {"checkpoint", RS_PART_CHECKPOINT, 1},
};

void rs_ranges_forget(void)
{
    rs_memory_free(names, NAME_SLOTS * sizeof *names);
    names = NULL;
    names_used = 0;
}

static uint8_t part_of(const char *text)
{
    for (unsigned i = 0; i < sizeof known_parts / sizeof known_parts[0]; i++) {
        size_t length = strlen(known_parts[i].prefix);
        if (!strncmp(text, known_parts[i].prefix, length) && (!known_parts[i].whole || !text[length]))
            return known_parts[i].part;
    }
    return RS_NO_PART;
}

/* The entry of a name, or the empty place where it belongs. Entries never move, so readers need no lock. */
static struct range_name *place_of(const char *text, uint32_t hash)
{
    uint32_t at = hash & (NAME_SLOTS - 1);
    for (;; at = (at + 1) & (NAME_SLOTS - 1)) {
        const char *there = __atomic_load_n(&names[at].text, __ATOMIC_ACQUIRE);
        if (!there || (names[at].hash == hash && !strcmp(there, text)))
            return &names[at];
    }
}

static RS_COLD const struct range_name *new_name(const char *text, uint32_t hash)
{
    const struct range_name *found = NULL;
    if (!rs_lock_take(&lock))
        return NULL;
    if (!names)
        names = rs_memory(NAME_SLOTS * sizeof *names);
    if (names && names_used >= (part_of(text) == RS_NO_PART ? MOST_NAMES : 2 * MOST_NAMES)) {
        text = FOLDED;
        hash = rs_hash(text);
    }
    struct range_name *entry = names ? place_of(text, hash) : NULL;
    if (entry && !entry->text) {
        const char *stored = NULL;
        entry->id = rs_intern_as(text, &stored);
        entry->hash = hash;
        entry->part = part_of(text);
        names_used++;
        if (entry->id)
            __atomic_store_n(&entry->text, stored, __ATOMIC_RELEASE);
    }
    if (entry && entry->text)
        found = entry;
    rs_lock_give(&lock);
    return found;
}

static inline const struct range_name *name_of(const char *text)
{
    const char *shown = text && text[0] ? text : "<unnamed>";
    uint32_t hash = rs_hash(shown);
    if (RS_LIKELY(names != NULL)) {
        const struct range_name *entry = place_of(shown, hash);
        if (RS_LIKELY(entry->text != NULL))
            return entry;
    }
    return new_name(shown, hash);
}

/* When it began, to be given to the end; 0 where nothing is recorded. */
RS_EXPORT uint64_t rankscope_range_begin(const char *text)
{
    if (RS_UNLIKELY(!atomic_load_explicit(&rs.enabled, memory_order_relaxed)) && !rs_begin())
        return 0;
    const struct range_name *name = name_of(text);
    uint64_t now = rs_ticks();
    if (name && name->part != RS_NO_PART)
        rs_part_enter(name->part, now);
    return now;
}

RS_EXPORT void rankscope_range_end(const char *text, uint64_t begin)
{
    if (RS_UNLIKELY(!begin || !rs.file))
        return;
    uint64_t now = rs_ticks();
    const struct range_name *name = name_of(text);
    if (!name)
        return;
    struct rs_thread *thread = rs_enter();
    if (thread) {
        rs_tally(thread, rs_key(name->id, 0, RS_LAYER_TORCH, rs.phase, 0, RS_KIND_CALL), now - begin, 0, 0);
        rs_leave(thread, now);
    }
    if (name->part != RS_NO_PART)
        rs_part_leave(name->part, now);
}
