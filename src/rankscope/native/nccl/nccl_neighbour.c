/* The profiler plugin that the job brings itself, by NCCL_PROFILER_PLUGIN or under the name that NCCL looks for. It is
 * loaded behind ours and gets the events that it would get without us, with its own context and its own handles.
 *
 * NCCL keeps one handle of an event, and uses that of an operation long after its stop: as the parent of what the
 * kernel does. Only their plugin knows when it is over. So NCCL gets their handle, which needs no translation however
 * long it lives. nccl.c keeps beside each operation what they call it, a table here does so for channels of kernels;
 * where they return none NCCL gets ours, marked as such, and where they call two alike a number that stands for both.
 *
 * The thread that enqueues writes nothing that the proxy's thread has just written: to fetch a line of the cache from
 * another processor takes longer than all else here. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "nccl.h"
#include "nccl_layer.h"

#define CONTEXTS 4096u
#define SETS 1024u
#define WAYS 3u                 /* with the lock, a line of the cache */
#define DOUBLES 65536u         /* all that a handle has room for; a page each time that some are used */
#define CONTEXT_MARK 0xA5C0u    /* in the highest 16 bits, which no address of a program has */
#define OURS_MARK 0xA5C1u
#define DOUBLE_MARK 0xA5C2u
#define BELOW_MARK 0xFFFFFFFFFFFFu

struct rs_nccl_neighbour rs_nccl_neighbour RS_FORKED_DATA;

static void *library;
static char library_name[256];
static uint8_t looked_for, is_looking, is_told[RS_NCCL_NEWEST_KNOWN + 1];
static pthread_t looker;
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;
static int users;               /* communicators that they know, or are being told of */

/* --- finding it --- */

static int is_library_name(const char *name)
{
    size_t length = strlen(name);
    return strchr(name, '/') || (!strncmp(name, "lib", 3) && length >= 3 && !strcmp(name + length - 3, ".so"));
}

/* As NCCL does, for any of its plugins. */
static void *open_named(const char *kind, const char *name, int flags)
{
    char built[256];
    if (!strncasecmp(name, "STATIC_PLUGIN", strlen(name)))
        return dlopen(NULL, flags);
    void *opened = dlopen(name, flags);
    snprintf(library_name, sizeof library_name, "%s", name);
    if (opened || is_library_name(name))
        return opened;
    snprintf(built, sizeof built, "libnccl-%s-%s.so", kind, name);
    snprintf(library_name, sizeof library_name, "%s", built);
    return dlopen(built, flags);
}

static void *open_theirs(void)
{
    const char *named = getenv("RANKSCOPE_NCCL_PROFILER_PLUGIN"), *net = getenv("NCCL_NET_PLUGIN");
    int flags = RTLD_NOW | RTLD_LOCAL;
    if (named && !strcasecmp(named, "none"))
        return NULL;
    void *opened = open_named("profiler", named && named[0] ? named : "libnccl-profiler.so", flags);
    if (!opened)    /* NCCL asks its network plugin then, if there is one */
        opened = open_named("net", net && net[0] ? net : "libnccl-net.so", flags | RTLD_NOLOAD);
    return opened;
}

static void look_for_theirs(void)
{
    char symbol[32];
    int count = 0;
    library = open_theirs();
    for (int version = 1; library && version <= RS_NCCL_NEWEST_KNOWN; version++) {
        snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
        struct nccl_profiler *theirs = dlsym(library, symbol);
        int is_another = theirs && !(theirs->name && !strcmp(theirs->name, RS_NCCL_NAME));
        rs_nccl_neighbour.exported[version] = is_another ? theirs : NULL;
        count += is_another;
    }
    if (library && !count) {
        dlclose(library);
        library = NULL;
    }
}

/* While theirs is looked for in the whole program, ours is what may be found: then nothing is. */
static int may_look(void)
{
    return !is_looking || !pthread_equal(looker, pthread_self());
}

static void look_once(void)
{
    int saved = errno;
    if (looked_for || is_looking)
        return;
    looker = pthread_self();
    is_looking = 1;
    look_for_theirs();
    is_looking = 0;
    looked_for = 1;
    errno = saved;
}

static void say_once(int version, const char *what, int is_warning)
{
    char text[512];
    if (is_told[version] || !rs_telling())
        return;
    is_told[version] = 1;
    snprintf(text, sizeof text, "the job's own NCCL profiler plugin %.200s (version %d): %s", library_name, version, what);
    rs_remark(text, is_warning);
}

/* What NCCL gets when it looks a version up: ours where theirs has that version too, so that both are given the
 * structures that theirs would be given alone. In the lookup the loader's lock is held, so this is one thread. */
void *rs_nccl_choose(int version, void *ours)
{
    int is_recorded = ours && rs_nccl_mode() != RS_NCCL_NONE;
    if (!may_look())
        return NULL;
    look_once();
    if (!library)
        return ours;
    if (!rs_nccl_neighbour.exported[version])
        return NULL;
    if (!ours)
        say_once(version, "newer than what rankscope knows: it has NCCL alone, whose operations are not recorded", 1);
    if (!is_recorded)
        return rs_nccl_neighbour.exported[version];
    __atomic_fetch_or(&rs_nccl_neighbour.versions, 1u << version, __ATOMIC_RELAXED);
    return ours;
}

/* --- contexts --- */

struct contexts {
    uint32_t generation;
    uint8_t used;
    int our_mask, told_mask;            /* told: what NCCL was given last */
    int *nccl_mask;
    void *ours, *theirs;
    struct nccl_profiler *plugin;       /* NULL: its init failed */
} __attribute__((aligned(64)));
static struct contexts opened_contexts[CONTEXTS];

RS_HOT struct contexts *contexts_of(void *context)
{
    uintptr_t number = (uintptr_t)context, at = number & 0xFFFF;
    if (RS_UNLIKELY(number >> 48 != CONTEXT_MARK || at >= CONTEXTS))
        return NULL;
    struct contexts *found = &opened_contexts[at];
    int is_current = __atomic_load_n(&found->generation, __ATOMIC_ACQUIRE) == (uint32_t)(number >> 16)
                  && __atomic_load_n(&found->used, __ATOMIC_ACQUIRE);
    return RS_LIKELY(is_current) ? found : NULL;
}

/* The one that calls; a program that NCCL is part of cannot be opened by its name. */
static void find_nccl(const void *caller)
{
    Dl_info about;
    int number = 0;
    void *nccl = dladdr(caller, &about) && about.dli_fname ? dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    int (*version)(int *) = (int (*)(int *))dlsym(nccl ? nccl : RTLD_DEFAULT, "ncclGetVersion");
    if (version && version(&number) == 0)
        __atomic_store_n(&rs_nccl_neighbour.nccl_version, number, __ATOMIC_RELAXED);
    if (nccl)
        dlclose(nccl);
}

/* From here on it is not closed: the one that fails, or has nothing to do with it, gives it back. */
void rs_nccl_opening(struct rs_nccl_opening *opening, int version, int *mask, const void *caller)
{
    int saved = errno;
    pthread_mutex_lock(&users_lock);
    if (may_look())
        look_once();            /* NCCL may not have come by rs_nccl_choose */
    opening->plugin = rs_nccl_neighbour.exported[version];
    users += opening->plugin != NULL;
    pthread_mutex_unlock(&users_lock);
    opening->their_mask = &rs_nccl_neighbour.mask;
    opening->nccl_mask = mask;
    if (opening->plugin) {
        __atomic_fetch_or(&rs_nccl_neighbour.versions, 1u << version, __ATOMIC_RELAXED);
        find_nccl(caller);
    }
    errno = saved;
}

static int merged(const struct contexts *pair)
{
    return pair->our_mask | __atomic_load_n(&rs_nccl_neighbour.mask, __ATOMIC_RELAXED);
}

static void give_back(void)
{
    void *closed = NULL;
    pthread_mutex_lock(&users_lock);
    if (--users == 0) {
        closed = library;
        memset(rs_nccl_neighbour.exported, 0, sizeof rs_nccl_neighbour.exported);
        library = NULL;
        looked_for = 0;
    }
    pthread_mutex_unlock(&users_lock);
    if (closed)
        dlclose(closed);
}

static void *take_context(const struct rs_nccl_opening *opening, int *mask)
{
    for (struct contexts *pair = opened_contexts; pair < opened_contexts + CONTEXTS; pair++) {
        uint8_t unused = 0;
        if (!__atomic_compare_exchange_n(&pair->used, &unused, 2, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        uint32_t generation = pair->generation + 1;
        pair->ours = opening->ours;
        pair->theirs = opening->theirs;
        pair->plugin = opening->failed ? NULL : opening->plugin;
        pair->our_mask = opening->our_mask;
        pair->nccl_mask = opening->nccl_mask;
        *mask = pair->told_mask = merged(pair);
        __atomic_store_n(&pair->generation, generation, __ATOMIC_RELEASE);
        __atomic_store_n(&pair->used, 1, __ATOMIC_RELEASE);
        return (void *)((uintptr_t)CONTEXT_MARK << 48 | (uintptr_t)generation << 16
                        | (uintptr_t)(pair - opened_contexts));
    }
    return NULL;
}

/* NCCL goes on without a plugin whose init fails; so does everybody but theirs here. A context that is not marked is
 * ours alone. */
int rs_nccl_opened(const struct rs_nccl_opening *opening, int version, void **context, int *mask)
{
    *context = opening->ours;
    *mask = opening->our_mask;
    if (!opening->plugin)
        return 0;
    say_once(version, opening->failed ? "its init failed, as it would have without rankscope"
                                      : "loaded behind rankscope's, it gets every event that it asks for", 0);
    void *taken = take_context(opening, mask);
    if (taken)
        *context = taken;
    else if (!opening->failed && opening->theirs)
        opening->plugin->finalize(opening->theirs);     /* more communicators at once than anybody has */
    if (opening->failed || !taken)
        give_back();
    return 0;
}

int rs_nccl_closed(void *context)
{
    struct contexts *pair = contexts_of(context);
    int result = 0;
    if (!pair) {
        rs_nccl_comm_end(context);
        return 0;
    }
    struct contexts closed = *pair;
    rs_nccl_comm_end(closed.ours);
    __atomic_store_n(&pair->used, 0, __ATOMIC_RELEASE);
    if (!closed.plugin)
        return 0;
    if (closed.theirs)      /* without a context NCCL calls no finalize */
        result = closed.plugin->finalize(closed.theirs);
    give_back();
    return result;
}

/* --- handles --- */

/* Of channels. Written with the set's lock, read without: theirs is the pair's last word and its first, NULL while it
 * changes. */
struct pair { void *theirs; uintptr_t ours; };
static struct set { rs_lock lock; struct pair pairs[WAYS]; } __attribute__((aligned(64))) sets[SETS];
static struct { rs_lock lock; uint32_t generation; void *theirs, *ours; } doubles[DOUBLES];
static atomic_uint next_double;

/* What a handle of NCCL's is to either. */
struct both { void *ours, *theirs; struct pair *pair; uint8_t is_theirs; };

static struct set *set_of(const void *theirs)
{
    return &sets[((uint64_t)(uintptr_t)theirs >> 3) * 0x9E3779B97F4A7C15u >> 54 & (SETS - 1)];
}

static void *theirs_at(const struct pair *pair) { return __atomic_load_n(&pair->theirs, __ATOMIC_ACQUIRE); }

static void *ours_at(const struct pair *pair) { return (void *)__atomic_load_n(&pair->ours, __ATOMIC_RELAXED); }

/* Mostly it is the first: a set holds what is under way. */
RS_HOT struct pair *find_pair(struct set *set, const void *theirs)
{
    struct pair *pairs = set->pairs;
    if (RS_LIKELY(theirs_at(&pairs[0]) == theirs))
        return &pairs[0];
    if (theirs_at(&pairs[1]) == theirs)
        return &pairs[1];
    return theirs_at(&pairs[2]) == theirs ? &pairs[2] : NULL;
}
_Static_assert(WAYS == 3, "find_pair");

static void set_pair(struct pair *pair, void *theirs, void *ours)
{
    __atomic_store_n(&pair->theirs, NULL, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&pair->ours, (uintptr_t)ours, __ATOMIC_RELAXED);
    __atomic_store_n(&pair->theirs, theirs, __ATOMIC_RELEASE);
}

static int is_free(const struct pair *pair)
{
    return !pair->theirs || !rs_nccl_is_under_way(ours_at(pair));
}

/* Where there is a pair of theirs, or none has room. */
static RS_COLD struct pair *make_room(struct set *set, const void *theirs)
{
    struct pair *known = find_pair(set, theirs);
    if (known)
        return is_free(known) ? known : NULL;
    for (unsigned i = 0; i < WAYS; i++)
        if (is_free(&set->pairs[i]))
            return &set->pairs[i];
    return NULL;
}

/* 0: their handle stands for another operation that is still under way, or there is no room. */
RS_HOT int put_pair(void *theirs, void *ours)
{
    struct set *set = set_of(theirs);
    if (RS_UNLIKELY(!rs_lock_take(&set->lock)))
        return 0;
    struct pair *place = &set->pairs[0];
    if (RS_UNLIKELY(place->theirs || set->pairs[1].theirs || set->pairs[2].theirs))
        place = make_room(set, theirs);
    if (RS_LIKELY(place != NULL))
        set_pair(place, theirs, ours);
    rs_lock_give(&set->lock);
    return place != NULL;
}

static RS_COLD void *double_of(void *theirs, void *ours)
{
    unsigned at = atomic_fetch_add_explicit(&next_double, 1, memory_order_relaxed) & (DOUBLES - 1);
    void *handle = theirs;
    if (!rs_lock_take(&doubles[at].lock))
        return handle;
    uint32_t generation = ++doubles[at].generation;
    doubles[at].theirs = theirs;
    doubles[at].ours = ours;
    handle = (void *)((uintptr_t)DOUBLE_MARK << 48 | (uintptr_t)generation << 16 | at);
    rs_lock_give(&doubles[at].lock);
    return handle;
}

RS_HOT void *joined(void *ours, void *theirs)
{
    if (!ours)
        return theirs;
    if (RS_UNLIKELY(!theirs))
        return (void *)((uintptr_t)OURS_MARK << 48 | ((uintptr_t)ours & BELOW_MARK));
    int is_theirs = rs_nccl_is_channel(ours) ? put_pair(theirs, ours) : rs_nccl_is_called(ours, theirs);
    return RS_LIKELY(is_theirs) ? theirs : double_of(theirs, ours);
}

/* No address of a program is such a number. */
RS_HOT int is_marked(const void *handle)
{
    uintptr_t mark = (uintptr_t)handle >> 48;
    return mark >= OURS_MARK && mark <= DOUBLE_MARK;
}

static RS_COLD struct both split_marked(uintptr_t number)
{
    struct both both = {0};
    uintptr_t at = number & 0xFFFF;
    if (number >> 48 == OURS_MARK)
        return (struct both){.ours = (void *)(number & BELOW_MARK)};
    if (at >= DOUBLES || !rs_lock_take(&doubles[at].lock))
        return both;
    if (doubles[at].generation == (uint32_t)(number >> 16))
        both = (struct both){.ours = doubles[at].ours, .theirs = doubles[at].theirs, .is_theirs = 1};
    rs_lock_give(&doubles[at].lock);
    return both;
}

RS_HOT struct both split(void *handle)
{
    struct both both = {.theirs = handle, .is_theirs = 1};
    if (RS_UNLIKELY(is_marked(handle)))
        return split_marked((uintptr_t)handle);
    struct pair *pair = RS_LIKELY(handle != NULL) ? find_pair(set_of(handle), handle) : NULL;
    if (RS_UNLIKELY(!pair))
        return both;
    uintptr_t ours = __atomic_load_n(&pair->ours, __ATOMIC_ACQUIRE);
    if (RS_UNLIKELY(__atomic_load_n(&pair->theirs, __ATOMIC_RELAXED) != handle))    /* it has become another's meanwhile */
        return both;
    both.ours = (void *)ours;
    both.pair = pair;
    return both;
}

/* Theirs alone: ours need not be looked for. */
RS_HOT void *theirs_of(void *handle)
{
    return RS_UNLIKELY(is_marked(handle)) ? split_marked((uintptr_t)handle).theirs : handle;
}

/* ours has never been that of another event. */
static __attribute__((noinline)) void remove_pair(void *theirs, const void *ours)
{
    struct set *set = set_of(theirs);
    if (!rs_lock_take(&set->lock))
        return;
    struct pair *pair = find_pair(set, theirs);
    if (pair && ours_at(pair) == ours)
        set_pair(pair, NULL, NULL);
    rs_lock_give(&set->lock);
}

/* --- events --- */

/* Which events NCCL tells a plugin with this mask: also those that are parents of what it has asked for. */
static uint64_t asked_by(uint64_t type)
{
    const uint64_t proxies = NCCL_EVENT_PROXY_OP | NCCL_EVENT_PROXY_STEP;
    const uint64_t below = proxies | NCCL_EVENT_KERNEL_CHANNEL | NCCL_EVENT_NET_PLUGIN;
    const uint64_t copies = NCCL_EVENT_CE_COLL | NCCL_EVENT_CE_SYNC | NCCL_EVENT_CE_BATCH;
    int number = __atomic_load_n(&rs_nccl_neighbour.nccl_version, __ATOMIC_RELAXED), is_old = number && number < 22600;
    switch (type) {
    case NCCL_EVENT_GROUP:
        return NCCL_EVENT_COLL | NCCL_EVENT_P2P | (is_old ? proxies : NCCL_EVENT_GROUP | below);
    case NCCL_EVENT_COLL:
        return NCCL_EVENT_COLL | (is_old ? proxies : below);
    case NCCL_EVENT_P2P:
        if (is_old)
            return NCCL_EVENT_COLL | proxies;
        return NCCL_EVENT_P2P | (number && number < 22800 ? below & ~(uint64_t)NCCL_EVENT_NET_PLUGIN : below);
    case NCCL_EVENT_PROXY_OP:
        return proxies | (is_old ? 0 : NCCL_EVENT_NET_PLUGIN);
    case NCCL_EVENT_PROXY_STEP:
        return NCCL_EVENT_PROXY_STEP | (is_old ? 0 : NCCL_EVENT_NET_PLUGIN);
    case NCCL_EVENT_GROUP_API:
        return ~(uint64_t)NCCL_EVENT_PROXY_CTRL;
    case NCCL_EVENT_COLL_API:
        return NCCL_EVENT_COLL_API | NCCL_EVENT_COLL | below | copies;
    case NCCL_EVENT_P2P_API:
        return NCCL_EVENT_P2P_API | NCCL_EVENT_P2P | below;
    case NCCL_EVENT_CE_COLL:
        return copies;
    default:
        return type;
    }
}

/* Parts of a collective by copy engines are told only where its own start has given a handle. */
static __attribute__((noinline)) int is_asked_with_others(uint64_t type, uint64_t mask, const void *their_parent)
{
    if ((type == NCCL_EVENT_CE_SYNC || type == NCCL_EVENT_CE_BATCH) && !their_parent)
        return 0;
    return (asked_by(type) & mask) != 0;
}

static int is_asked(uint64_t type, const void *their_parent)
{
    uint64_t mask = (uint32_t)__atomic_load_n(&rs_nccl_neighbour.mask, __ATOMIC_RELAXED);
    if (RS_LIKELY(type == NCCL_EVENT_COLL && mask & NCCL_EVENT_COLL))
        return 1;
    return is_asked_with_others(type, mask, their_parent);
}

/* They want something else now. */
static void tell_mask(struct contexts *pair)
{
    int wanted = merged(pair);
    if (RS_LIKELY(__atomic_load_n(&pair->told_mask, __ATOMIC_RELAXED) == wanted))
        return;
    __atomic_store_n(&pair->told_mask, wanted, __ATOMIC_RELAXED);
    __atomic_store_n(pair->nccl_mask, wanted, __ATOMIC_RELAXED);
}

/* Of a channel, where ours has asked for them. */
static void *parent_of(const struct contexts *pair, void *given)
{
    if (is_marked(given))
        return split_marked((uintptr_t)given).ours;
    return pair && pair->our_mask & NCCL_EVENT_KERNEL_CHANNEL ? rs_nccl_parent(pair->ours, given) : NULL;
}

/* The parent lies at the same place in every version. Between the two starts it is what either side knows; ours asks for
 * that of a channel only. */
RS_NCCL_PATH int rs_nccl_start_both(int version, rs_nccl_start ours, void *context, void **handle, void *description)
{
    struct contexts *pair = contexts_of(context);
    struct nccl_profiler *plugin = pair ? pair->plugin : NULL;
    uint64_t type = version >= 5 ? ((struct nccl_descr_v5 *)description)->type : ((struct nccl_descr_v4 *)description)->type;
    void **parent = &((struct nccl_descr_v5 *)description)->parent, *given = *parent, *our_parent = NULL;
    void *our_handle = NULL, *their_handle = NULL, *their_parent = theirs_of(given);
    int result = 0;
    if (RS_LIKELY(rs.file && pair && type & (NCCL_EVENT_COLL | NCCL_EVENT_P2P)))
        rs_nccl_expect(pair->ours);
    else if (type == NCCL_EVENT_KERNEL_CHANNEL)
        our_parent = parent_of(pair, given);
    if (RS_LIKELY(plugin && is_asked(type, their_parent))) {
        their_handle = theirs_of(*handle);      /* what they leave as it is stays as it was */
        *parent = their_parent;
        result = plugin->start(pair->theirs, &their_handle, description);
    }
    if (RS_LIKELY(!pair || (uint64_t)pair->our_mask & type)) {  /* without a pair: ours alone, or of a communicator that is over */
        *parent = our_parent;
        ours(pair ? pair->ours : context, &our_handle, description, their_handle);
    }
    *parent = given;
    *handle = joined(our_handle, their_handle);
    if (pair)
        tell_mask(pair);
    return result;
}

RS_NCCL_PATH int rs_nccl_stop_both(int version, void *handle)
{
    struct nccl_profiler *plugin = rs_nccl_neighbour.exported[version];
    struct both both = {.ours = rs_nccl_to_stop(handle), .theirs = handle, .is_theirs = 1};
    if (RS_UNLIKELY(!both.ours))
        both = split(handle);
    if (RS_LIKELY(both.ours != NULL))
        rs_nccl_stop(both.ours);
    if (RS_UNLIKELY(both.pair != NULL))
        remove_pair(both.theirs, both.ours);
    return plugin && both.is_theirs ? plugin->stop(both.theirs) : 0;
}

int rs_nccl_state_both(int version, rs_nccl_state ours, void *handle, int state, const void *args)
{
    struct both both = split(handle);
    struct nccl_profiler *plugin = rs_nccl_neighbour.exported[version];
    if (both.ours)
        ours(both.ours, state, args);
    return plugin && both.is_theirs ? plugin->state(both.theirs, state, args) : 0;
}

/* In the child of a fork NCCL is of no use; what theirs makes of it is theirs. */
void rs_nccl_neighbour_forget(void)
{
    pthread_mutex_init(&users_lock, NULL);
    memset(is_told, 0, sizeof is_told);
}
