/* Opens the library that it is given as Python opens its extensions: for itself alone. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words)
{
    void *library = count == 2 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*run)(void) = library ? (int (*)(void))dlsym(library, "run") : NULL;
    if (!run)
        fprintf(stderr, "%s\n", dlerror());
    return run ? run() : 1;
}
