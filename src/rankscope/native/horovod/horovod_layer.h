/* The Horovod layer: what its background thread does. Operations come from Python (agent/horovod_operations.py). */
#ifndef RANKSCOPE_HOROVOD_LAYER_H
#define RANKSCOPE_HOROVOD_LAYER_H

void rs_horovod_forget(void);       /* in the child of a fork */

#endif
