/* Opens the library as Python does, and lets the recorder look at it where there is one, as the agent does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words)
{
    void *library = count == 2 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(void) = library ? (int (*)(void))dlsym(library, "run") : NULL;
    unsigned (*look)(void) = (unsigned (*)(void))dlsym(RTLD_DEFAULT, "rankscope_horovod");
    if (look) {
        unsigned first = look();
        fprintf(stderr, "%u %u\n", first, look());
    }
    return run ? run() : 1;
}
