/* The recorder as a module of Python, without being linked with one: the agent asks the interpreter to make a module
 * of this library, which is in the process already. What it uses is of Python's stable ABI and found by name.
 *
 * Functions of importlib are given wrappers: one, and two more where system calls are put down to causes. A function in
 * C leaves no frame, so that tracebacks are those of the program; the function that it stands for is its `self`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <sys/types.h>

#include "calls_layer.h"
#include "imports.h"
#include "recorder.h"

typedef struct python_object { ssize_t references; void *type; } object;
typedef object *(*function)(object *, object *, object *);

struct method { const char *name; function call; int flags; const char *text; };
struct definition {
    object base;
    object *(*start)(void);
    ssize_t index;
    object *copy;
    const char *name, *text;
    ssize_t size;
    struct method *methods;
    void *slots, *traverse, *clear, *release;
};

#define VARARGS_KEYWORDS 3
#define VARARGS 1

static struct {
    object *(*call)(object *, object *, object *);
    object *(*function_new)(struct method *, object *, object *);
    object *(*attribute)(object *, const char *);
    int (*set_attribute)(object *, const char *, object *);
    object *(*item)(object *, ssize_t);
    const char *(*utf8)(object *, ssize_t *);
    object *(*definition_init)(struct definition *);
    void (*keep)(object *), (*release)(object *), (*clear_error)(void);
    object *none;
} python;

static const char *first_text(object *arguments)
{
    object *first = python.item(arguments, 0);
    const char *text = first ? python.utf8(first, NULL) : NULL;
    if (!text)
        python.clear_error();
    return text ? text : "?";
}

static object *find_and_load(object *original, object *arguments, object *words)
{
    if (rankscope_calls_thread.own)     /* the agent's own */
        return python.call(original, arguments, words);
    uint64_t number = rs_import_begin(first_text(arguments));
    object *module = python.call(original, arguments, words);
    rs_import_end(number, module == NULL);
    return module;
}

/* After it the loader makes the module and reads its code. */
static object *find_spec(object *original, object *arguments, object *words)
{
    rs_import_cause(RS_CAUSE_SEARCH);
    object *spec = python.call(original, arguments, words);
    rs_import_cause(RS_CAUSE_CODE);
    return spec;
}

/* Runs the module's code, makes an extension, imports the parent, or compiles. */
static object *call_with_frames_removed(object *original, object *arguments, object *words)
{
    object *what = python.item(arguments, 0);
    object *name = what ? python.attribute(what, "__name__") : NULL;
    const char *text = name ? python.utf8(name, NULL) : NULL;
    if (!text)
        python.clear_error();
    int runs = text && (!strcmp(text, "exec") || !strcmp(text, "exec_dynamic") || !strcmp(text, "create_dynamic"));
    if (name)
        python.release(name);
    if (!runs)
        return python.call(original, arguments, words);
    struct rs_import_place before = rs_import_here();
    rs_import_cause(RS_CAUSE_MODULE);
    object *result = python.call(original, arguments, words);
    rs_import_back_to(&before);
    return result;
}

static object *nothing(void)
{
    python.keep(python.none);
    return python.none;
}

static struct method wrappers[] = {
    {"_find_and_load", find_and_load, VARARGS_KEYWORDS, NULL},
    {"_find_spec", find_spec, VARARGS_KEYWORDS, NULL},
    {"_call_with_frames_removed", call_with_frames_removed, VARARGS_KEYWORDS, NULL},
};

static void wrap(object *importlib, struct method *wrapper)
{
    object *original = python.attribute(importlib, wrapper->name);
    object *made = original ? python.function_new(wrapper, original, NULL) : NULL;
    if (!made || python.set_attribute(importlib, wrapper->name, made) != 0)
        python.clear_error();
    if (made)
        python.release(made);
    if (original)
        python.release(original);
}

/* install(importlib): from now on its imports are timed. */
static object *install(object *self, object *arguments, object *words)
{
    (void)self, (void)words;
    object *importlib = python.item(arguments, 0);
    if (!importlib)
        python.clear_error();
    uint32_t mode = rs_recording() ? rs_imports_mode() : RS_IMPORTS_OFF;
    size_t count = mode >= RS_IMPORTS_CALLS ? sizeof wrappers / sizeof wrappers[0] : mode == RS_IMPORTS_TIME;
    for (size_t i = 0; importlib && i < count; i++)
        wrap(importlib, &wrappers[i]);
    return nothing();
}

/* own(1) … own(0): what happens in between is the agent's doing, not the program's. */
static object *own(object *self, object *arguments, object *words)
{
    (void)self, (void)words;
    const char *text = first_text(arguments);
    if (text[0] == '1')
        rs_own_enter();
    else if (rankscope_calls_thread.own)
        rs_own_leave();
    return nothing();
}

static struct method methods[] = {
    {"install", install, VARARGS, NULL},
    {"own", own, VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct definition definition = {.base = {1, NULL}, .name = "_rankscope_imports", .methods = methods};

static int find_python(void)
{
    struct { void *place; const char *name; } wanted[] = {
        {&python.call, "PyObject_Call"}, {&python.function_new, "PyCFunction_NewEx"},
        {&python.attribute, "PyObject_GetAttrString"}, {&python.set_attribute, "PyObject_SetAttrString"},
        {&python.item, "PyTuple_GetItem"}, {&python.utf8, "PyUnicode_AsUTF8AndSize"},
        {&python.definition_init, "PyModuleDef_Init"}, {&python.keep, "Py_IncRef"}, {&python.release, "Py_DecRef"},
        {&python.clear_error, "PyErr_Clear"}, {&python.none, "_Py_NoneStruct"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        void *found = dlsym(RTLD_DEFAULT, wanted[i].name);
        if (!found)
            return 0;
        memcpy(wanted[i].place, &found, sizeof found);
    }
    return 1;
}

/* NULL without an error set is an error too, of which the agent takes no notice. */
RS_EXPORT object *PyInit__rankscope_imports(void)
{
    return find_python() ? python.definition_init(&definition) : NULL;
}
