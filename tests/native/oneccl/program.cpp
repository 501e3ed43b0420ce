// A program of oneCCL: all kinds of calls, exceptions that it catches, events that it forgets, threads. Built by the test
// as a program, and as a library that another opens privately.
#include "standin_ccl.hpp"

#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

using namespace ccl::v1;

namespace {

const int kThreads = 4, kEach = 500;
const auto kFloat = datatype::float32;
const auto kSum = reduction::sum;

struct Unwound {
    explicit Unwound(int *count) : counter(count) {}
    ~Unwound() { ++*counter; }
    int *counter;
};

template <class Work> void caught(const char *what, Work work)
{
    int unwound = 0;
    try {
        Unwound here(&unwound);
        work();
        std::printf("%s: nothing thrown\n", what);
    } catch (const std::exception &error) {
        std::printf("%s: %s, unwound %d\n", what, error.what(), unwound);
    }
}

void every_kind(const communicator &comm)
{
    char *a = reinterpret_cast<char *>(0x1000), *b = reinterpret_cast<char *>(0x2000);
    const stream on{5};
    const counts_t some{1, 2, 3}, other{4, 5, 6};
    for (int turn = 0; turn < 2; turn++) {
        const deps_t none;
        allreduce(a, b, 10, kFloat, kSum, comm, allreduce_attr{1}, none).wait();
        allreduce(a, b, 10, kFloat, kSum, comm, on, allreduce_attr{2}, none).wait();
        reduce(a, b, 11, datatype::int64, kSum, 2, comm, reduce_attr{3}, none).wait();
        reduce(a, b, 11, datatype::int64, kSum, 2, comm, on, reduce_attr{4}, none).wait();
        broadcast(a, 12, datatype::int8, 1, comm, broadcast_attr{5}, none).wait();
        broadcast(a, 12, datatype::int8, 1, comm, on, broadcast_attr{6}, none).wait();
        allgather(a, b, 14, datatype::bfloat16, comm, allgather_attr{7}, none).wait();
        allgather(a, b, 14, datatype::bfloat16, comm, on, allgather_attr{8}, none).wait();
        allgatherv(a, 15, b, some, kFloat, comm, allgatherv_attr{9}, none).wait();
        allgatherv(a, 15, b, some, kFloat, comm, on, allgatherv_attr{10}, none).wait();
        alltoall(a, b, 16, datatype::float64, comm, alltoall_attr{11}, none).wait();
        alltoall(a, b, 16, datatype::float64, comm, on, alltoall_attr{12}, none).wait();
        alltoallv(a, some, b, other, kFloat, comm, alltoallv_attr{13}, none).wait();
        alltoallv(a, some, b, other, kFloat, comm, on, alltoallv_attr{14}, none).wait();
        reduce_scatter(a, b, 18, kFloat, kSum, comm, reduce_scatter_attr{15}, none).wait();
        reduce_scatter(a, b, 18, kFloat, kSum, comm, on, reduce_scatter_attr{16}, none).wait();
        barrier(comm, barrier_attr{17}, none).wait();
        barrier(comm, on, barrier_attr{18}, none).wait();
        send(a, 19, kFloat, 2, comm, pt2pt_attr{19}, none).wait();
        recv(a, 20, kFloat, 0, comm, pt2pt_attr{20}, none).wait();
    }
    allreduce<float>(reinterpret_cast<float *>(a), reinterpret_cast<float *>(b), 21, kSum, comm, allreduce_attr{21}, {}).wait();
    alltoallv<double>(reinterpret_cast<double *>(a), some, reinterpret_cast<double *>(b), other, comm, on,
                      alltoallv_attr{22}, {}).wait();
    allreduce(a, b, 22, register_datatype({24}), kSum, comm, allreduce_attr{23}, {}).wait();
}

void events(const communicator &comm)
{
    int *a = nullptr;
    event first = allreduce(a, a, 30, kFloat, kSum, comm, allreduce_attr{30}, {});
    event moved = std::move(first);     // what it stands for goes along
    bool once = moved.test();
    std::printf("test: %d %d\n", once, moved.test());
    deps_t both;
    both.push_back(allreduce(a, a, 31, kFloat, kSum, comm, allreduce_attr{31}, {}));
    both.push_back(allreduce(a, a, 32, kFloat, kSum, comm, allreduce_attr{32}, {}));
    group_start();
    allreduce(a, a, 33, kFloat, kSum, comm, allreduce_attr{33}, both);      // forgotten
    group_end();
    both[1].wait();
    both[0].wait();
    caught("call", [&] { allreduce(a, a, 13, kFloat, kSum, comm, allreduce_attr{34}, {}); });
    caught("wait", [&] { allreduce(a, a, 17, kFloat, kSum, comm, allreduce_attr{35}, {}).wait(); });
    caught("typed", [&] { allreduce<float>(nullptr, nullptr, 13, kSum, comm, allreduce_attr{36}, {}); });
    caught("making", [&] { create_communicator(3, 1, nullptr, {}); });
    allreduce(a, a, 34, kFloat, kSum, comm, allreduce_attr{37}, {}).wait();     // all is as before
}

void by_threads(const communicator &comm)
{
    std::vector<std::thread> all;
    for (int i = 0; i < kThreads; i++)
        all.emplace_back([&comm] {
            for (int call = 0; call < kEach; call++) {
                const size_t count = call % 10 == 3 ? 13 : 40;
                try {
                    allreduce(nullptr, nullptr, count, kFloat, kSum, comm, allreduce_attr{40}, {}).wait();
                } catch (const std::exception &) {
                }
            }
        });
    for (auto &one : all)
        one.join();
}

void in_c()
{
    if (!onecclAllReduce) {
        std::printf("no C interface\n");
        return;
    }
    onecclUniqueId id;
    for (size_t i = 0; i < sizeof id.data; i++)
        id.data[i] = static_cast<char>(i * 7);
    void *comm = nullptr, *part = nullptr;
    std::printf("init %d\n", onecclCommInitRank(&comm, 3, id, 1));
    std::printf("split %d\n", onecclCommSplit(comm, 2, 1, &part, nullptr));
    std::printf("allreduce %d\n", onecclAllReduce(nullptr, nullptr, 50, 7, 0, comm, nullptr));
    std::printf("reduce %d\n", onecclReduce(nullptr, nullptr, 51, 8, 0, 2, part, nullptr));
    std::printf("failing %d\n", onecclReduce(nullptr, nullptr, 13, 8, 0, 2, comm, nullptr));
    std::printf("destroy %d\n", onecclCommDestroy(comm));
}

}  // namespace

extern "C" int run()
{
    auto store = create_main_kvs({});
    communicator comm = create_communicator(3, 1, store, {});
    communicator part = split_communicator(comm, 2, 1);
    every_kind(comm);
    events(part);
    by_threads(comm);
    in_c();
    std::printf("checksum %lx\n", standin_checksum());
    return 7;
}

#ifdef AS_PROGRAM
int main() { return run(); }
#endif
