/* The string table: each text once, by a number. */
#include "recorder.h"

#define STRINGS_CHUNK (4u * RS_PAGE)
#define NAME_SLOTS 131072u

static rs_lock string_lock;
static struct rs_chunk *string_chunk;
static uint32_t strings_used;
static struct { const char *text; uint32_t hash; uint16_t id; } *names;  /* text lies in the file */

/* Where `text` is in the private index, or the empty place where it belongs. */
static uint32_t name_place(const char *text, uint32_t hash)
{
    uint32_t at = hash & (NAME_SLOTS - 1);
    while (names[at].text && (names[at].hash != hash || strcmp(names[at].text, text)))
        at = (at + 1) & (NAME_SLOTS - 1);
    return at;
}

/* Each string ends in \0 in the file, so that the index can point at it. */
static const char *append_string(const char *text)
{
    uint32_t length = (uint32_t)strlen(text);
    uint32_t need = (uint32_t)sizeof(struct rs_string) + (length + 1 + 3) / 4 * 4;
    uint32_t least = (uint32_t)sizeof *string_chunk + need;
    const struct rs_chunk like = {.kind = RS_CHUNK_STRINGS, .chunk_bytes = least > STRINGS_CHUNK ? least : STRINGS_CHUNK,
                                  .first_id = strings_used + 1};
    struct rs_string *entry = rs_row_place(&string_chunk, like, need);
    if (!entry)
        return NULL;
    entry->length = length;
    memcpy(entry->bytes, text, length + 1);
    rs_row_publish(string_chunk, need);
    return entry->bytes;
}

static uint16_t intern_locked(const char *text, const char **stored)
{
    uint32_t hash = rs_hash(text);
    if (!names && !(names = rs_memory(NAME_SLOTS * sizeof *names)))
        return 0;
    uint32_t at = name_place(text, hash);
    if (!names[at].text) {
        const char *appended = strings_used < RS_NAMES_MAX - 1 ? append_string(text) : NULL;
        if (!appended)
            return 0;
        names[at].text = appended;
        names[at].hash = hash;
        names[at].id = (uint16_t)++strings_used;
    }
    *stored = names[at].text;
    return names[at].id;
}

uint16_t rs_intern_as(const char *text, const char **stored)
{
    uint16_t id = 0;
    if (!text[0] || !rs.file)
        return 0;
    rs_own_enter();     /* calls are not counted in here: counting may need a string */
    if (rs_lock_try(&string_lock) || rs_lock_take(&string_lock)) {
        id = intern_locked(text, stored);
        rs_lock_give(&string_lock);
    }
    rs_own_leave();
    if (!id)
        rs_count(&rs.file->lost_strings, 1);
    return id;
}

uint16_t rs_intern(const char *text)
{
    const char *stored;
    return rs_intern_as(text, &stored);
}

void rs_strings_forget(void)
{
    string_chunk = NULL;
    strings_used = 0;
    rs_memory_free(names, NAME_SLOTS * sizeof *names);
    names = NULL;
}
