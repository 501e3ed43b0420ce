/* A library that calls a function of its own, which others may replace. */
int pick_for_a_test(int value) { return value + 1; }
int call_it(int value) { return pick_for_a_test(value); }
