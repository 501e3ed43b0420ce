/* What a report is to say of this process: who else observes it, and what is therefore not recorded. */
#include "recorder.h"

#define MOST_NOTES 32u

static rs_lock lock;
static struct rs_chunk *chunk;

void rs_remark(const char *text, int is_warning)
{
    const struct rs_chunk like = {.kind = RS_CHUNK_NOTES, .row_bytes = sizeof(struct rs_note_row), .chunk_bytes = RS_PAGE};
    if (!rs_telling() || !rs_lock_take(&lock))
        return;
    if (!chunk || chunk->rows < MOST_NOTES) {
        struct rs_note_row *row = rs_row_place(&chunk, like, sizeof *row);
        if (row) {
            *row = (struct rs_note_row){rs_intern(text), (uint16_t)is_warning};
            rs_row_publish(chunk, 1);
        }
    }
    rs_lock_give(&lock);
}

/* In the child of a fork: its file is another. */
void rs_notes_forget(void) { chunk = NULL; }
