/* A libcupti that delivers what the driver has put into its buffers: the same interface, no GPU. */
#ifndef FAKE_CUPTI_H
#define FAKE_CUPTI_H

#include <stddef.h>
#include <stdint.h>

void fake_put(const void *record, size_t bytes);    /* into the buffer that is being filled */
void fake_flush_full(void);                         /* as CUPTI's own thread does with a full buffer */
void fake_drop(size_t records);
uint64_t fake_now(void);
void fake_set_now(uint64_t ns);
int fake_enabled(int kind);
int fake_selected(void);                            /* API calls selected one by one */
int fake_tells_calls(void);
void fake_begin(void);                              /* CUDA runs from here on */
int fake_clients(void);                             /* registrations so far */
int fake_flushes(void);                             /* FlushAll calls so far */
int fake_forced(void);                              /* of them, those that cut what is under way */
void fake_hold(int on);                             /* 1: flushes wait from now on */
int fake_attached(void);                            /* 1 between a registration and the next finalize */
int fake_finalized(void);                           /* how often it was taken off */
int fake_configured(void);                          /* a bit for each unified memory counter asked for */

#endif
