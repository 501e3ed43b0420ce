// Horovod's background thread as far as its classes have the same names; linked as Horovod's library is, so that none of
// its own calls can be interposed.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace horovod {
namespace common {

struct Status {
    std::string reason;
};
struct TensorTableEntry {
    std::string name;
    size_t bytes;
};
struct Response {
    int kind;
};

class Controller {
public:
    virtual ~Controller() = default;
    virtual void CrossRankBitwiseAnd(std::vector<long long> &bits, int count) = 0;
    virtual void RecvReadyTensors(std::vector<std::string> &ready) = 0;
};

class MPIController : public Controller {
public:
    void CrossRankBitwiseAnd(std::vector<long long> &bits, int count) override;
    void RecvReadyTensors(std::vector<std::string> &ready) override;
};

class HorovodOp {
public:
    virtual ~HorovodOp() = default;
    virtual Status Execute(std::vector<TensorTableEntry> &entries, const Response &response) = 0;
};

class AllreduceOp : public HorovodOp {
protected:
    virtual void MemcpyInFusionBuffer(const std::vector<TensorTableEntry> &entries, const void *&fused, void *&buffer,
                                      size_t &length);
};

class MPIAllreduce : public AllreduceOp {
public:
    Status Execute(std::vector<TensorTableEntry> &entries, const Response &response) override;
};

void MPIController::CrossRankBitwiseAnd(std::vector<long long> &bits, int count)
{
    for (int i = 0; i < count; i++)
        bits[(size_t)i] &= 5;
}

void MPIController::RecvReadyTensors(std::vector<std::string> &ready) { ready.push_back("ready"); }

void AllreduceOp::MemcpyInFusionBuffer(const std::vector<TensorTableEntry> &entries, const void *&fused, void *&buffer,
                                       size_t &length)
{
    length = 0;
    for (const auto &entry : entries)
        length += entry.bytes;
    fused = buffer = &length;
}

Status MPIAllreduce::Execute(std::vector<TensorTableEntry> &entries, const Response &response)
{
    size_t length = 0;
    if (response.kind == 13)
        throw std::runtime_error("thirteen");
    if (entries.size() > 1) {
        const void *fused = nullptr;
        void *buffer = nullptr;
        MemcpyInFusionBuffer(entries, fused, buffer, length);
    }
    return Status{"done with " + std::to_string(entries.size()) + " of " + std::to_string(length) + " bytes, long enough"};
}

}  // namespace common
}  // namespace horovod

using namespace horovod::common;

static void background(Controller &controller, HorovodOp &operation)
{
    std::vector<long long> bits{7, 7};
    std::vector<std::string> ready;
    std::vector<TensorTableEntry> one{{"a", 100}}, two{{"a", 100}, {"b", 28}};
    for (int i = 0; i < 1000; i++)
        controller.CrossRankBitwiseAnd(bits, 2);
    controller.RecvReadyTensors(ready);
    for (int i = 0; i < 10; i++)
        std::printf("%s\n", operation.Execute(i % 2 ? two : one, Response{i}).reason.c_str());
    try {
        operation.Execute(one, Response{13});
    } catch (const std::exception &error) {
        std::printf("caught %s\n", error.what());
    }
    std::printf("%lld %zu\n", bits[1], ready.size());
}

extern "C" void horovod_init() {}

extern "C" int run()
{
    MPIController controller;
    MPIAllreduce operation;
    std::thread(background, std::ref(controller), std::ref(operation)).join();
    return 7;
}
