// The classes of jaxlib that the recorder looks for, with the same names and shapes of arguments. Each call checks that
// what it was given came through, and gives back what the caller checks.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace absl {
inline namespace lts_20260107 {
template <class T> class Span {
  public:
    Span(T *at, size_t count) : at_(at), count_(count) {}
    T &operator[](size_t at) const { return at_[at]; }
    size_t size() const { return count_; }

  private:
    T *at_;
    size_t count_;
};
template <class T, size_t N> class InlinedVector {
  public:
    InlinedVector(size_t count) : twice_(2 * count) {}
    ~InlinedVector() { twice_ = 0; }
    InlinedVector(const InlinedVector &other) : twice_(other.twice_) {}
    size_t size() const { return twice_ / 2; }

  private:
    size_t twice_;
    T inlined_[N];
};
template <class T> class StatusOr {
  public:
    StatusOr(T value) : status_(1), value_(std::move(value)) {}
    ~StatusOr() { status_ = 0; }
    T &operator*() { return value_; }

  private:
    uintptr_t status_;
    T value_;
};
}  // namespace lts_20260107
}  // namespace absl

namespace stream_executor {
class DeviceAddressBase {
  public:
    DeviceAddressBase(void *at = nullptr, uint64_t size = 0) : opaque_(at), size_(size), payload_(77) {}
    void *opaque_;
    uint64_t size_, payload_;
};
}  // namespace stream_executor

namespace tsl {
template <class T> class Future {
  public:
    explicit Future(long told) : told_(new long(told)) {}
    Future(Future &&other) : told_(other.told_) { other.told_ = nullptr; }
    ~Future() { delete told_; }
    long told() const { return *told_; }

  private:
    long *told_;
};
}  // namespace tsl

namespace xla {
using stream_executor::DeviceAddressBase;
enum PrimitiveType : int { F32 = 11 };
enum class ReductionKind { SUM = 0 };
class RankId {
  public:
    int64_t value;
};
class CliqueIds {};
class Device {};
class CliqueKey {
  public:
    virtual ~CliqueKey() = default;
    virtual std::string ToString() const = 0;
};
class Collectives {
  public:
    struct DeviceRank { Device *device; RankId rank; };
    struct Config { long asked = 5; };
};
class Communicator {
  public:
    struct Executor { long told = 9; };
    virtual ~Communicator() = default;
};

#define EXPECT(condition)                                                                                              \
    if (!(condition))                                                                                                  \
    abort()

namespace cpu {
class CpuCliqueKey : public CliqueKey {
  public:
    explicit CpuCliqueKey(std::string devices) : devices_(std::move(devices)) {}
    std::string ToString() const override;

  private:
    std::string devices_;
};
__attribute__((noinline)) std::string CpuCliqueKey::ToString() const { return "devices=[" + devices_ + "]"; }

#define REDUCING                                                                                                       \
    (DeviceAddressBase send, DeviceAddressBase receive, PrimitiveType type, size_t count, ReductionKind kind,          \
     const Communicator::Executor &executor)
#define PLAIN                                                                                                          \
    (DeviceAddressBase send, DeviceAddressBase receive, PrimitiveType type, size_t count,                              \
     const Communicator::Executor &executor)

class GlooCommunicator : public Communicator {
  public:
    virtual tsl::Future<void> AllReduce REDUCING;
    virtual tsl::Future<void> Broadcast(DeviceAddressBase send, DeviceAddressBase receive, PrimitiveType type,
                                        size_t count, RankId root, const Communicator::Executor &executor);
    virtual tsl::Future<void> ReduceScatter REDUCING;
    virtual tsl::Future<void> AllGather PLAIN;
    virtual tsl::Future<void> CollectivePermute(DeviceAddressBase send, DeviceAddressBase receive, PrimitiveType type,
                                                size_t count, std::optional<RankId> source,
                                                absl::Span<const RankId> targets,
                                                const Communicator::Executor &executor);
    virtual tsl::Future<void> AllToAll(absl::InlinedVector<DeviceAddressBase, 4> send,
                                       absl::InlinedVector<DeviceAddressBase, 4> receive, PrimitiveType type,
                                       size_t count, const Communicator::Executor &executor);
};
tsl::Future<void> GlooCommunicator::AllReduce REDUCING
{
    EXPECT(type == F32 && executor.told == 9 && kind == ReductionKind::SUM && send.payload_ == 77);
    EXPECT(send.size_ == 4 * count && receive.size_ == send.size_);
    return tsl::Future<void>(1);
}
tsl::Future<void> GlooCommunicator::Broadcast(DeviceAddressBase send, DeviceAddressBase, PrimitiveType, size_t count,
                                              RankId root, const Communicator::Executor &executor)
{
    EXPECT(send.size_ == 4 * count && root.value == 1 && executor.told == 9);
    return tsl::Future<void>(2);
}
tsl::Future<void> GlooCommunicator::ReduceScatter REDUCING
{
    EXPECT(send.size_ == 4 * count && kind == ReductionKind::SUM && executor.told == 9);
    (void)receive, (void)type;
    return tsl::Future<void>(3);
}
tsl::Future<void> GlooCommunicator::AllGather PLAIN
{
    EXPECT(send.size_ == 4 * count && executor.told == 9);
    (void)receive, (void)type;
    return tsl::Future<void>(4);
}
tsl::Future<void> GlooCommunicator::CollectivePermute(DeviceAddressBase send, DeviceAddressBase, PrimitiveType,
                                                      size_t count, std::optional<RankId> source,
                                                      absl::Span<const RankId> targets,
                                                      const Communicator::Executor &executor)
{
    EXPECT(send.size_ == 4 * count && source && source->value == 3 && targets.size() == 2 && targets[1].value == 6);
    EXPECT(executor.told == 9);
    return tsl::Future<void>(5);
}
tsl::Future<void> GlooCommunicator::AllToAll(absl::InlinedVector<DeviceAddressBase, 4> send,
                                             absl::InlinedVector<DeviceAddressBase, 4> receive, PrimitiveType type,
                                             size_t count, const Communicator::Executor &executor)
{
    EXPECT(send.size() == 2 && receive.size() == 2 && type == F32 && count == 8 && executor.told == 9);
    return tsl::Future<void>(6);
}

class GlooCollectives : public Collectives {
  public:
    virtual ~GlooCollectives() = default;
    virtual absl::StatusOr<std::vector<std::unique_ptr<Communicator>>>
    CreateCommunicators(const CliqueKey &key, const std::optional<CliqueIds> &ids,
                        absl::Span<const DeviceRank> ranks, const Config &config);
};
absl::StatusOr<std::vector<std::unique_ptr<Communicator>>>
GlooCollectives::CreateCommunicators(const CliqueKey &, const std::optional<CliqueIds> &,
                                     absl::Span<const DeviceRank> ranks, const Config &config)
{
    EXPECT(config.asked == 5);
    std::vector<std::unique_ptr<Communicator>> made;
    for (size_t at = 0; at < ranks.size(); at++)
        made.push_back(std::make_unique<GlooCommunicator>());
    return made;
}
}  // namespace cpu

namespace ifrt {
class Array {};
class ExecuteOptions {
  public:
    long told = 4;
};
class DeviceList {
  public:
    ~DeviceList() {}
};
class LoadedExecutable {
  public:
    virtual ~LoadedExecutable() = default;
    virtual std::string_view name() const = 0;
    virtual absl::StatusOr<std::vector<long>> Execute(absl::Span<Array *> arguments, const ExecuteOptions &options,
                                                      std::optional<DeviceList> devices) = 0;
};
class PjRtLoadedExecutable : public LoadedExecutable {
  public:
    explicit PjRtLoadedExecutable(std::string name) : name_(std::move(name)) {}
    ~PjRtLoadedExecutable() override;
    std::string_view name() const override;
    absl::StatusOr<std::vector<long>> Execute(absl::Span<Array *> arguments, const ExecuteOptions &options,
                                              std::optional<DeviceList> devices) override;

  private:
    std::string name_;
};
PjRtLoadedExecutable::~PjRtLoadedExecutable() {}
std::string_view PjRtLoadedExecutable::name() const { return name_; }
absl::StatusOr<std::vector<long>> PjRtLoadedExecutable::Execute(absl::Span<Array *> arguments,
                                                                const ExecuteOptions &options,
                                                                std::optional<DeviceList> devices)
{
    EXPECT(arguments.size() == 3 && options.told == 4 && devices);
    return std::vector<long>{1, 2, 3};
}
}  // namespace ifrt
}  // namespace xla

using namespace xla;

#define PUBLIC extern "C" __attribute__((visibility("default")))

PUBLIC void *load_program(const char *name)
{
    ifrt::LoadedExecutable *made = new ifrt::PjRtLoadedExecutable(name);
    return made;
}

PUBLIC int start_program(void *program)
{
    ifrt::Array *arguments[3] = {};
    auto results = static_cast<ifrt::LoadedExecutable *>(program)->Execute({arguments, 3}, {}, ifrt::DeviceList());
    return (int)(*results).size();
}

PUBLIC void delete_program(void *program) { delete static_cast<ifrt::LoadedExecutable *>(program); }

PUBLIC void *make_communicator(const char *devices, long rank)
{
    static cpu::GlooCollectives collectives;
    cpu::CpuCliqueKey key(devices);
    Collectives::DeviceRank ranks[1] = {{nullptr, {rank}}};
    cpu::GlooCollectives *made_by = &collectives;
    __asm__("" : "+r"(made_by));    // called as one of unknown type, as XLA does
    auto made = made_by->CreateCommunicators(key, {}, {ranks, 1}, {});
    return (*made)[0].release();
}

// Every collective once: the sum of what each gave back.
PUBLIC long communicate(void *communicator, unsigned long count)
{
    cpu::GlooCommunicator *by = static_cast<cpu::GlooCommunicator *>(static_cast<Communicator *>(communicator));
    __asm__("" : "+r"(by));
    Communicator::Executor executor;
    DeviceAddressBase send(nullptr, 4 * count), receive(nullptr, 4 * count);
    RankId targets[2] = {{5}, {6}};
    absl::InlinedVector<DeviceAddressBase, 4> two(2);
    long sum = by->AllReduce(send, receive, F32, count, ReductionKind::SUM, executor).told();
    sum += by->Broadcast(send, receive, F32, count, RankId{1}, executor).told();
    sum += by->ReduceScatter(send, receive, F32, count, ReductionKind::SUM, executor).told();
    sum += by->AllGather(send, receive, F32, count, executor).told();
    sum += by->CollectivePermute(send, receive, F32, count, RankId{3}, {targets, 2}, executor).told();
    return sum + by->AllToAll(two, two, F32, 8, executor).told();
}
