/* Argument lists of machine words, for the wrappers. */
#ifndef RANKSCOPE_MPI_WORDS_H
#define RANKSCOPE_MPI_WORDS_H

#define ARGS_0 void
#define ARGS_1 W a0
#define ARGS_2 ARGS_1, W a1
#define ARGS_3 ARGS_2, W a2
#define ARGS_4 ARGS_3, W a3
#define ARGS_5 ARGS_4, W a4
#define ARGS_6 ARGS_5, W a5
#define ARGS_7 ARGS_6, W a6
#define ARGS_8 ARGS_7, W a7
#define ARGS_9 ARGS_8, W a8
#define ARGS_10 ARGS_9, W a9
#define ARGS_11 ARGS_10, W a10
#define ARGS_12 ARGS_11, W a11
#define ARGS_13 ARGS_12, W a12

#define PASS_0
#define PASS_1 a0
#define PASS_2 PASS_1, a1
#define PASS_3 PASS_2, a2
#define PASS_4 PASS_3, a3
#define PASS_5 PASS_4, a4
#define PASS_6 PASS_5, a5
#define PASS_7 PASS_6, a6
#define PASS_8 PASS_7, a7
#define PASS_9 PASS_8, a8
#define PASS_10 PASS_9, a9
#define PASS_11 PASS_10, a10
#define PASS_12 PASS_11, a11
#define PASS_13 PASS_12, a12

#endif
