// A library that does nothing but take its arguments, return its objects and throw: built as libccl.so.1 by the test.
#include "standin_ccl.hpp"

#include <atomic>
#include <cstring>
#include <stdexcept>

namespace {

std::atomic<unsigned long> checksum{0};
const size_t kThrows = 13, kFails = 17;     // counts: the call throws, the wait does

unsigned long folded(unsigned long seed, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        seed = (seed ^ static_cast<const unsigned char *>(bytes)[i]) * 0x100000001b3ul;
    return seed;
}

template <class T> unsigned long word_of(const T &value) { return (unsigned long)value; }
unsigned long word_of(const ccl::v1::counts_t &counts) { return folded(1, counts.data(), counts.size() * sizeof counts[0]); }
unsigned long word_of(const ccl::v1::communicator &comm) { return 100u * (unsigned)comm.size() + (unsigned)comm.rank(); }
unsigned long word_of(const ccl::v1::stream &stream) { return (unsigned long)stream.number; }
unsigned long word_of(const ccl::v1::deps_t &deps) { return deps.size(); }
#define ATTR(name) unsigned long word_of(const ccl::v1::name &attr) { return (unsigned long)attr.number; }
ATTR(allreduce_attr) ATTR(reduce_attr) ATTR(broadcast_attr) ATTR(allgather_attr) ATTR(allgatherv_attr)
ATTR(alltoall_attr) ATTR(alltoallv_attr) ATTR(reduce_scatter_attr) ATTR(barrier_attr) ATTR(pt2pt_attr)

// A sum of what each call had: the order in which threads come does not matter, the order of arguments does.
template <class... Arguments>
void take(const char *name, const Arguments &...arguments)
{
    unsigned long words[] = {word_of(arguments)...};
    checksum += folded(folded(7, name, std::strlen(name)), words, sizeof words);
}

}  // namespace

namespace ccl {

class event_impl {
public:
    size_t count;
    int looks;
};
struct comm_interface { int size, rank; };

namespace v1 {

event::event() noexcept = default;
event::event(std::unique_ptr<event_impl> &&with) noexcept : impl(std::move(with)) {}
event::event(event &&other) noexcept = default;
event::~event() noexcept = default;

void event::wait()
{
    if (impl && impl->count == kFails)
        throw std::runtime_error("wait of seventeen");
}

bool event::test() { return impl->looks++ > 0; }

static event begun(size_t count)
{
    if (count == kThrows)
        throw std::runtime_error("thirteen");
    return event(std::unique_ptr<event_impl>(new event_impl{count, 0}));
}

int communicator::rank() const { return impl->rank; }
int communicator::size() const { return impl->size; }
std::array<char, 256> kvs::get_address() const { return address; }

std::shared_ptr<kvs> create_main_kvs(const kvs_attr &)
{
    std::array<char, 256> address;
    address.fill('m');
    return std::make_shared<kvs>(address);
}

std::shared_ptr<kvs> create_kvs(const std::array<char, 256> &address, const kvs_attr &) { return std::make_shared<kvs>(address); }

communicator create_communicator(int size, int rank, std::shared_ptr<kvs_interface> store, const comm_attr &)
{
    if (!store)
        throw std::runtime_error("no store");
    take("create", size, rank);
    return communicator(std::make_shared<comm_interface>(comm_interface{size, rank}));
}

communicator split_communicator(const communicator &comm, int colour, int key)
{
    take("split", comm, colour, key);
    return communicator(std::make_shared<comm_interface>(comm_interface{2, key}));
}

datatype register_datatype(const datatype_attr &) { return static_cast<datatype>(15); }
size_t get_datatype_size(datatype type) { return static_cast<int>(type) == 15 ? 24 : 0; }
void group_start() { take("group_start", 0); }
void group_end() { take("group_end", 0); }

#define TAKES(name, count, parameters, arguments)                                                                          \
    event name(parameters, const communicator &comm, const name##_attr &attr, const deps_t &deps)                          \
    {                                                                                                                      \
        take(#name, arguments, comm, attr, deps);                                                                          \
        return begun(count);                                                                                               \
    }                                                                                                                      \
    event name(parameters, const communicator &comm, const stream &on, const name##_attr &attr, const deps_t &deps)        \
    {                                                                                                                      \
        take(#name, arguments, comm, on, attr, deps);                                                                      \
        return begun(count);                                                                                               \
    }
#define P(...) __VA_ARGS__

TAKES(allreduce, n, P(const void *a, void *b, size_t n, datatype t, reduction r), P(a, b, n, t, r))
TAKES(reduce, n, P(const void *a, void *b, size_t n, datatype t, reduction r, int root), P(a, b, n, t, r, root))
TAKES(broadcast, n, P(void *a, size_t n, datatype t, int root), P(a, n, t, root))
TAKES(allgather, n, P(const void *a, void *b, size_t n, datatype t), P(a, b, n, t))
TAKES(allgatherv, n, P(const void *a, size_t n, void *b, const counts_t &c, datatype t), P(a, n, b, c, t))
TAKES(alltoall, n, P(const void *a, void *b, size_t n, datatype t), P(a, b, n, t))
TAKES(alltoallv, 1, P(const void *a, const counts_t &c, void *b, const counts_t &d, datatype t), P(a, c, b, d, t))
TAKES(reduce_scatter, n, P(const void *a, void *b, size_t n, datatype t, reduction r), P(a, b, n, t, r))

event barrier(const communicator &comm, const barrier_attr &attr, const deps_t &deps)
{
    take("barrier", comm, attr, deps);
    return begun(0);
}
event barrier(const communicator &comm, const stream &on, const barrier_attr &attr, const deps_t &deps)
{
    take("barrier", comm, on, attr, deps);
    return begun(0);
}
event send(void *a, size_t n, datatype t, int peer, const communicator &comm, const pt2pt_attr &attr, const deps_t &deps)
{
    take("send", a, n, t, peer, comm, attr, deps);
    return begun(n);
}
event recv(void *a, size_t n, datatype t, int peer, const communicator &comm, const pt2pt_attr &attr, const deps_t &deps)
{
    take("recv", a, n, t, peer, comm, attr, deps);
    return begun(n);
}

// As in the real one, a typed function comes to an untyped one: which is no call of the program's.
template <class T, class>
event allreduce(const T *a, T *b, size_t n, reduction r, const communicator &comm, const allreduce_attr &attr,
                const deps_t &deps)
{
    return allreduce(static_cast<const void *>(a), static_cast<void *>(b), n, datatype::float32, r, comm, attr, deps);
}
template <class T, class>
event alltoallv(const T *a, const counts_t &c, T *b, const counts_t &d, const communicator &comm, const stream &on,
                const alltoallv_attr &attr, const deps_t &deps)
{
    return alltoallv(static_cast<const void *>(a), c, static_cast<void *>(b), d, datatype::float64, comm, on, attr, deps);
}
template event allreduce<float, event>(const float *, float *, size_t, reduction, const communicator &,
                                       const allreduce_attr &, const deps_t &);
template event alltoallv<double, event>(const double *, const counts_t &, double *, const counts_t &, const communicator &,
                                        const stream &, const alltoallv_attr &, const deps_t &);

}  // namespace v1
}  // namespace ccl

extern "C" {

static ccl::comm_interface of_c[4];

int onecclCommInitRank(void **comm, size_t size, onecclUniqueId id, int rank)
{
    take("init", size, folded(3, id.data, sizeof id.data), rank);
    of_c[0] = {static_cast<int>(size), rank};
    *comm = &of_c[0];
    return 0;
}

int onecclCommSplit(void *comm, int colour, int key, void **made, void *config)
{
    take("c split", comm == &of_c[0], colour, key, config);
    of_c[1] = {2, key};
    *made = &of_c[1];
    return 0;
}

int onecclCommCount(void *comm, int *count) { return *count = static_cast<ccl::comm_interface *>(comm)->size, 0; }
int onecclCommUserRank(void *comm, int *rank) { return *rank = static_cast<ccl::comm_interface *>(comm)->rank, 0; }
int onecclCommDestroy(void *comm) { return take("destroy", comm == &of_c[0]), 0; }

// As its plugin for the host does it: by the C++ interface, waiting inside.
int onecclAllReduce(void *a, void *b, size_t n, int type, int op, void *, void *stream)
{
    take("c allreduce", a, b, n, type, op, stream);
    static ccl::v1::communicator world(std::make_shared<ccl::comm_interface>(of_c[0]));
    ccl::v1::allreduce(a, b, n, ccl::v1::datatype::float32, ccl::v1::reduction::sum, world, ccl::v1::allreduce_attr{1},
                       ccl::v1::deps_t{}).wait();
    return 0;
}

int onecclReduce(const void *a, void *b, size_t n, int type, int op, int root, void *, void *stream)
{
    take("c reduce", a, b, n, type, op, root, stream);
    return n == kThrows ? 4 : 0;
}

unsigned long standin_checksum() { return checksum; }
}
