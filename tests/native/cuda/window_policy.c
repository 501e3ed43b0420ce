/* The policy of cuda_windows.c alone, in a time that passes as fast as it is computed: a job whose steps take so long
 * bare, and longer by a share while they are recorded, with noise. Prints what came of it. */
#include <stdio.h>
#include <stdlib.h>

#include "../../../src/rankscope/native/cuda/cuda_layer.h"
#include "../../../src/rankscope/native/torch/steps.h"

struct rs_cuda_layer rs_cuda;
static struct rs_cuda row;

struct rs_chunk *rs_chunk_new(uint32_t kind, uint32_t thread, uint32_t row_bytes, uint64_t bytes)
{
    (void)kind, (void)thread, (void)row_bytes;
    return calloc(1, bytes);
}

uint16_t rs_intern(const char *text)
{
    (void)text;
    return 1;
}

static enum rs_may_step may_step = RS_STEPS_TRAINING;
enum rs_may_step rs_steps_may_come(void) { return may_step; }

static int may_interrupt;       /* without steps, too */
int rs_cuda_may_interrupt(void) { return may_interrupt; }

static uint64_t busy_ns, busy_until_ns;     /* of the device */
uint64_t rs_gpu_busiest(uint64_t *last_ns)
{
    if (last_ns)
        *last_ns = busy_until_ns;
    return busy_ns;
}

static double noise(void) { return 2.0 * rand() / RAND_MAX - 1; }

int main(int count, char **values)
{
    if (count != 12)
        return 2;
    double step_ns = atof(values[1]) * 1e6, cost = atof(values[2]), spread = atof(values[3]), switch_ns = atof(values[4]) * 1e6;
    double length_ns = atof(values[5]) * 1e9, stepless_records = atof(values[6]);
    double pause_ns = atof(values[8]) * 1e9, pauses_at_ns = 1e9;      /* long before the first window ends */
    double drift = atof(values[9]), pace = 1, paced_ns = 0;           /* of the machine, whose speed changes every two seconds */
    may_interrupt = atoi(values[10]);
    double busy = atof(values[11]);             /* share of the time for which the device is */
    may_step = stepless_records > 0 ? RS_STEPS_PERHAPS : RS_STEPS_TRAINING;
    srand((unsigned)atoi(values[7]));
    rs_cuda.row = &row;
    row.started_ns = 1000;
    rs_windows_begin(1);
    rs_windows_opened(1000);
    double now_ns = 1000, turn_ns = 0, bare_ns = 0, recorded_ns = 0, stall_ns = 0;
    int is_open = 1;
    while (now_ns < length_ns) {
        if (now_ns >= paced_ns) {
            pace = 1 + drift * noise();
            paced_ns = now_ns + 2e9;
        }
        double ns = step_ns * (1 + spread * noise()) * pace, begin_ns = now_ns;
        if (pause_ns > 0 && now_ns >= pauses_at_ns) {
            ns += pause_ns;
            now_ns -= is_open ? cost * pause_ns : 0;    /* in which nothing is launched */
            pauses_at_ns += 1e11;
        }
        bare_ns += ns;
        now_ns += ns * (is_open ? 1 + cost : 1) + stall_ns;
        stall_ns = 0;
        recorded_ns += is_open ? now_ns - begin_ns : 0;
        for (int kernel = 0; is_open && kernel < (stepless_records > 0 ? (int)stepless_records : 100); kernel++)
            rs_windows_kernel(1000);
        busy_ns += is_open ? (uint64_t)(busy * (now_ns - begin_ns)) : 0;
        busy_until_ns = is_open ? (uint64_t)now_ns : busy_until_ns;
        if (stepless_records <= 0)
            rs_windows_step((uint64_t)begin_ns, (uint64_t)now_ns, 0);
        if (now_ns < turn_ns)
            continue;
        turn_ns = now_ns + 2e8;
        enum rs_turn turn = rs_windows_turn((uint64_t)now_ns);
        if (turn == RS_TURN_STAY)
            continue;
        is_open = turn == RS_TURN_OPEN;
        if (is_open) {          /* the program waits for it in its next step */
            rs_windows_opened((uint64_t)now_ns);
            stall_ns = switch_ns;
            rs_windows_switched((uint64_t)(now_ns + switch_ns), (uint64_t)switch_ns);
        } else {
            now_ns += switch_ns;
            rs_windows_closed((uint64_t)now_ns);
            rs_windows_switched((uint64_t)now_ns, (uint64_t)switch_ns);
        }
    }
    rs_windows_turn((uint64_t)now_ns);
    printf("{\"overhead\": %.6f, \"told_overhead\": %.6f, \"recorded\": %.6f, \"windows\": %lu, \"costs\": %lu, "
           "\"cost\": %.6f, \"error\": %.6f, \"seen_steps\": %lu, \"recorded_steps\": %.3f}\n",
           now_ns / bare_ns - 1, (double)row.spent_ns / (now_ns - (double)row.spent_ns), recorded_ns / now_ns,
           (unsigned long)row.windows, (unsigned long)row.costs, (double)row.cost_ppm / 1e6,
           (double)row.cost_error_ppm / 1e6, (unsigned long)row.seen_steps, (double)row.window_millisteps / 1000);
    return 0;
}
