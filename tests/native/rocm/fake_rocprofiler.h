/* What the stand-in of rocprofiler-sdk and the program that drives it share. */
#ifndef FAKE_ROCPROFILER_H
#define FAKE_ROCPROFILER_H

#include <stdint.h>

/* Numbers of kinds as in none of the real versions: who does not ask by name gets others. */
enum fake_kind { FAKE_CODE = 3, FAKE_HIP = 5, FAKE_HSA = 7, FAKE_MARKERS = 9, FAKE_LAST_CALLBACK = 12 };
enum fake_record { FAKE_COPY = 4, FAKE_KERNEL = 6, FAKE_MEMORY = 8, FAKE_LAST_RECORD = 10 };

uint64_t fake_enter(int kind, int operation, uint64_t argument);        /* returns what fake_leave wants */
void fake_leave(int kind, int operation, uint64_t begun, uint64_t argument, uint64_t result);
uint64_t fake_correlation(void);                                        /* of the call this thread is in, or was in last */
void fake_kernel_symbol(uint64_t kernel, const char *name);
void fake_kernel(uint64_t correlation, uint64_t agent, uint64_t queue, uint64_t kernel, uint64_t start, uint64_t end);
void fake_copy(uint64_t correlation, int direction, uint64_t from, uint64_t to, uint64_t bytes, uint64_t start, uint64_t end);
void fake_memory(uint64_t correlation, int operation, uint64_t agent, uint64_t address, uint64_t bytes);
uint64_t fake_now(void);
void fake_shuffle(uint64_t seed);       /* records of a buffer are delivered in another order */
int fake_hip_operation(const char *name);
void fake_end(void);                    /* the SDK's own end, as at exit */

#endif
