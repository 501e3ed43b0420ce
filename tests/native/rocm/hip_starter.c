/* Opens the library that it is given, for nobody else to see, and runs what is in it. */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    int (*run)(int, char **) = library ? (int (*)(int, char **))dlsym(library, "run") : NULL;
    if (!run) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    return run(count - 2, arguments + 2);
}
