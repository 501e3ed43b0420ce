/* Replaces what a library calls of its own, before and after its first call. Prints what was called. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int rankscope_own_calls(const char *symbol, void *ours, void **original);

static int (*theirs)(int);

static int ours(int value) { return 100 + theirs(value); }

int main(int count, char **values)
{
    void *library = dlopen(values[1], RTLD_LAZY | RTLD_LOCAL), *original = NULL;
    int (*call_it)(int);
    *(void **)&call_it = dlsym(library, "call_it");
    int before = count > 2 && !strcmp(values[2], "called") ? call_it(1) : 0;
    int done = rankscope_own_calls("pick_for_a_test", (void *)ours, &original);
    *(void **)&theirs = original;
    int is_theirs = original == dlsym(library, "pick_for_a_test");
    int after = call_it(1), again = rankscope_own_calls("pick_for_a_test", (void *)ours, &original);
    int none = rankscope_own_calls("no_such_function", (void *)ours, &original);
    printf("%d %d %d %d %d %d\n", before, done, done ? is_theirs : 0, after, again, none);
    return 0;
}
