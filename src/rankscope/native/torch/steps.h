/* Steps, ranges, process groups and marks: what a training loop tells about itself, from torch or from the program. */
#ifndef RANKSCOPE_STEPS_H
#define RANKSCOPE_STEPS_H

#include "recorder.h"

#define RS_NO_PART 0xFF

/* Not 0 once a step has begun: MPI calls of the loop's thread are then told to the step. 2 after the first one. */
extern uint8_t rs_step_open __attribute__((visibility("hidden")));

/* The first collective has ended: it may have been part of the first step. */
static inline void rs_first_collective_over(void)
{
    rs_set_phase(rs_step_open == 1 ? RS_PHASE_FIRST_STEP : RS_PHASE_STEADY);
}

/* steps.c: what the loop's thread does. Others are ignored: they are tallied, and belong to no step. */
void rs_part_enter(uint8_t part, uint64_t now);
void rs_part_leave(uint8_t part, uint64_t now);
void rs_step_blocked(uint64_t begin, uint64_t end);
void rs_step_program_begins(uint64_t now);
void rs_step_program_ended(uint64_t now);
void rs_steps_forget(void);
/* Whether there may be steps: nobody would tell of optimizers; none was made yet; one was. */
enum rs_may_step { RS_STEPS_NONE = 0, RS_STEPS_PERHAPS = 1, RS_STEPS_TRAINING = 2 };
enum rs_may_step rs_steps_may_come(void);

/* step_record.c: everything a step counts, since the process began; a step is the difference of two. */
struct rs_sample {
    uint64_t ticks;
    uint64_t part_ticks[RS_PARTS], blocked_ticks[RS_PARTS];
    uint64_t progress_ticks, covered_ticks, gc_ticks;
    uint64_t collectives, collective_bytes, gc_runs;
    uint64_t backwards, optimizer_steps;
};
struct rs_system {
    uint64_t cpu_ns, process_cpu_ns, runnable_ns;
    uint64_t minor_faults, major_faults, voluntary_switches, involuntary_switches, process_involuntary_switches;
};
void rs_ask_system(uint64_t ticks, int at_once);
uint64_t rs_runnable_ns(int32_t tid);
void rs_step_write(uint64_t number, uint32_t flags, const struct rs_sample *begin, const struct rs_sample *end);
void rs_step_ring_forget(void);

/* step_blocks.c: what is kept of every step, however many there are. */
void rs_step_blocks_add(const struct rs_chunk *ring, uint64_t last, uint64_t complete);
void rs_step_blocks_forget(void);

/* host_log.c: what the loop's thread did when, once there is a GPU whose idle time it explains. */
enum rs_doing { RS_DOING_GC = 1, RS_DOING_COMPILE = 2, RS_DOING_BLOCKED = 4, RS_DOING_ENDED = 8 };
struct rs_moment {
    uint64_t ticks;
    uint32_t step;              /* the last step that has ended */
    uint8_t part;               /* from then on; RS_NO_PART: outside all */
    uint8_t doing;              /* RS_DOING_ENDED: `step` ends here, or ends here instead of where it was said before */
};
void rs_host_note(const struct rs_moment *moment);
void rs_cuda_step_ended(void);      /* cuda.c: the loop's thread is in no call of CUDA */
int rs_host_next(uint64_t *next, struct rs_moment *moment, uint64_t *lost);
uint32_t rs_loop_tid(void);
void rs_host_log_forget(void);

/* in_progress.c: collectives in progress, of any thread. */
struct rs_in_progress { uint64_t progress_ticks, covered_ticks, collectives, bytes; };
/* waits_told: whoever waits for it says so, and it may be over long before */
void rs_progress_begin(uint64_t now, uint64_t bytes, int waits_told);
void rs_progress_end(uint64_t now, int waits_told);
struct rs_in_progress rs_progress_now(uint64_t now);
/* From here on, watch how long this thread is off its CPU while collectives are in progress. */
void rs_exposure_begin(void);
uint64_t rs_exposure_end(uint64_t now, uint64_t told_ticks);
void rs_exposure_anew(uint64_t now);    /* this thread has not waited so far, but where that was told */
void rs_progress_forget(void);

/* flops.c: what the operators of sampled steps compute. */
void rs_flops_step(uint64_t number, int more);
void rs_flops_compiling(void);
void rs_flops_forget(void);

/* allocator.c */
void rs_allocator_forget(void);
uint64_t rs_step_number(void);      /* of the step that goes on */

/* ranges.c */
void rs_ranges_forget(void);

/* process_groups.c */
void rs_process_groups_forget(void);

/* workers.c */
void rs_workers_forget(void);

/* marks.c: the first moment of its kind. */
void rs_mark_at(uint16_t kind, const char *name, uint64_t ticks);
void rs_marks_forget(void);

#endif
