// oneCCL's interface as far as its functions have the same mangled names: what the recorder binds to. Written for tests.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace ccl {

class event_impl;
struct comm_interface;

namespace v1 {

enum class datatype : int { int8, uint8, int16, uint16, int32, uint32, int64, uint64, float16, float32, float64, bfloat16 };
enum class reduction : int { sum };

class event {
public:
    event() noexcept;
    explicit event(std::unique_ptr<event_impl> &&with) noexcept;
    event(event &&other) noexcept;
    ~event() noexcept;
    void wait();
    bool test();

private:
    std::unique_ptr<event_impl> impl;
};

class communicator final {
public:
    explicit communicator(std::shared_ptr<comm_interface> with) : impl(std::move(with)) {}
    int rank() const;
    int size() const;

private:
    std::shared_ptr<comm_interface> impl;
};

struct stream { int number; };
struct kvs_attr {};
struct comm_attr {};
struct datatype_attr { size_t size; };
struct allreduce_attr { int number; };
struct reduce_attr { int number; };
struct broadcast_attr { int number; };
struct allgather_attr { int number; };
struct allgatherv_attr { int number; };
struct alltoall_attr { int number; };
struct alltoallv_attr { int number; };
struct reduce_scatter_attr { int number; };
struct barrier_attr { int number; };
struct pt2pt_attr { int number; };

class kvs_interface {
public:
    virtual ~kvs_interface() = default;
};
class kvs : public kvs_interface {
public:
    explicit kvs(const std::array<char, 256> &at) : address(at) {}
    std::array<char, 256> get_address() const;

private:
    std::array<char, 256> address;
};

std::shared_ptr<kvs> create_main_kvs(const kvs_attr &);
std::shared_ptr<kvs> create_kvs(const std::array<char, 256> &, const kvs_attr &);
communicator create_communicator(int size, int rank, std::shared_ptr<kvs_interface>, const comm_attr &);
communicator split_communicator(const communicator &, int colour, int key);
datatype register_datatype(const datatype_attr &);
size_t get_datatype_size(datatype);
void group_start();
void group_end();

using counts_t = std::vector<size_t>;
using deps_t = std::vector<event>;

#define WITH_AND_WITHOUT_STREAM(name, ...)                                                                                 \
    event name(__VA_ARGS__, const communicator &, const name##_attr &, const deps_t &);                                    \
    event name(__VA_ARGS__, const communicator &, const stream &, const name##_attr &, const deps_t &);

WITH_AND_WITHOUT_STREAM(allreduce, const void *, void *, size_t, datatype, reduction)
WITH_AND_WITHOUT_STREAM(reduce, const void *, void *, size_t, datatype, reduction, int)
WITH_AND_WITHOUT_STREAM(broadcast, void *, size_t, datatype, int)
WITH_AND_WITHOUT_STREAM(allgather, const void *, void *, size_t, datatype)
WITH_AND_WITHOUT_STREAM(allgatherv, const void *, size_t, void *, const counts_t &, datatype)
WITH_AND_WITHOUT_STREAM(alltoall, const void *, void *, size_t, datatype)
WITH_AND_WITHOUT_STREAM(alltoallv, const void *, const counts_t &, void *, const counts_t &, datatype)
WITH_AND_WITHOUT_STREAM(reduce_scatter, const void *, void *, size_t, datatype, reduction)
event barrier(const communicator &, const barrier_attr &, const deps_t &);
event barrier(const communicator &, const stream &, const barrier_attr &, const deps_t &);
event send(void *, size_t, datatype, int, const communicator &, const pt2pt_attr &, const deps_t &);
event recv(void *, size_t, datatype, int, const communicator &, const pt2pt_attr &, const deps_t &);

template <class T, class = event>
event allreduce(const T *, T *, size_t, reduction, const communicator &, const allreduce_attr &, const deps_t &);
template <class T, class = event>
event alltoallv(const T *, const counts_t &, T *, const counts_t &, const communicator &, const stream &,
                const alltoallv_attr &, const deps_t &);

}  // namespace v1
}  // namespace ccl

extern "C" {
struct onecclUniqueId { char data[4096]; };
int onecclCommInitRank(void **comm, size_t size, onecclUniqueId id, int rank) __attribute__((weak));
int onecclCommSplit(void *comm, int colour, int key, void **made, void *config) __attribute__((weak));
int onecclCommCount(void *comm, int *count) __attribute__((weak));
int onecclCommUserRank(void *comm, int *rank) __attribute__((weak));
int onecclCommDestroy(void *comm) __attribute__((weak));
int onecclAllReduce(void *, void *, size_t, int, int, void *comm, void *stream) __attribute__((weak));
int onecclReduce(const void *, void *, size_t, int, int, int, void *comm, void *stream) __attribute__((weak));
unsigned long standin_checksum();   // of every argument of every call
}
