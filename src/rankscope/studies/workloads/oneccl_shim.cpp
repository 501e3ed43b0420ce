// oneCCL's C++ interface as a few C functions, for buffers of float32 on the host. Nothing may throw out of here.
#include <oneapi/ccl.hpp>

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace {

enum Operation { kAllreduce, kBroadcast, kReduce, kAllgather, kReduceScatter, kAlltoall, kBarrier };

const int kRoot = 0;
const auto kFloat = ccl::datatype::float32;
const auto kSum = ccl::reduction::sum;

ccl::shared_ptr_class<ccl::kvs> meeting;
std::unique_ptr<ccl::communicator> world;
std::string problem;
std::string version;

template <class Work>
int kept(Work work)
{
    try {
        work();
        return 0;
    } catch (const std::exception &error) {
        problem = error.what();
    } catch (...) {
        problem = "unknown exception";
    }
    return 1;
}

// `count` is what each rank has of the operation: all of it, or its part of the result or of what it gives to each.
ccl::event begun(int operation, const void *send, void *receive, size_t count)
{
    switch (operation) {
    case kAllreduce: return ccl::allreduce(send, receive, count, kFloat, kSum, *world);
    case kBroadcast: return ccl::broadcast(receive, count, kFloat, kRoot, *world);
    case kReduce: return ccl::reduce(send, receive, count, kFloat, kSum, kRoot, *world);
    case kAllgather: {
        std::vector<size_t> counts(world->size(), count);
        return ccl::allgatherv(send, count, receive, counts, kFloat, *world);
    }
    case kReduceScatter: return ccl::reduce_scatter(send, receive, count, kFloat, kSum, *world);
    case kAlltoall: return ccl::alltoall(send, receive, count, kFloat, *world);
    default: return ccl::barrier(*world);
    }
}

}  // namespace

extern "C" {

const char *rankscope_oneccl_problem() { return problem.c_str(); }

size_t rankscope_oneccl_address_bytes() { return sizeof(ccl::kvs::address_type); }

// On the rank that opens the meeting.
int rankscope_oneccl_open(char *address)
{
    return kept([=] {
        ccl::init();
        meeting = ccl::create_main_kvs();
        auto own = meeting->get_address();
        std::memcpy(address, own.data(), own.size());
    });
}

// On all: the one that opened the meeting gives no address.
int rankscope_oneccl_connect(int size, int rank, const char *address)
{
    return kept([=] {
        if (address) {
            ccl::init();
            ccl::kvs::address_type other;
            std::memcpy(other.data(), address, other.size());
            meeting = ccl::create_kvs(other);
        }
        world = std::make_unique<ccl::communicator>(ccl::create_communicator(size, rank, meeting));
    });
}

int rankscope_oneccl_do(int operation, const void *send, void *receive, size_t count)
{
    return kept([=] { begun(operation, send, receive, count).wait(); });
}

const char *rankscope_oneccl_version()
{
    kept([] { version = ccl::get_library_version().full; });
    return version.c_str();
}

int rankscope_oneccl_close()
{
    return kept([] {
        world.reset();
        meeting.reset();
    });
}
}
