/* The oneCCL layer: collectives and messages by the functions that a program calls, completion by its events. */
#ifndef RANKSCOPE_ONECCL_LAYER_H
#define RANKSCOPE_ONECCL_LAYER_H

int rs_oneccl_recording(void);      /* whether the program calls oneCCL: its operations are told here */
void rs_oneccl_flush(void);         /* at the end of the process: who has not waited until now will not */
void rs_oneccl_forget(void);        /* in the child of a fork */

#endif
