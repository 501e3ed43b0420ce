// Observes torch: ranges of its user scope, and collectives with their asynchronous end. Compiled once against the
// torch in use (agent/build.py); everything is kept by librankscope.so, which is preloaded. Nothing here may throw.
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>

extern "C" {
uint64_t rankscope_range_begin(const char *name);
void rankscope_range_end(const char *name, uint64_t begin);
uint32_t rankscope_collective_begin(const char *name, uint32_t group, uint64_t bytes, int32_t root, uint64_t order,
                                    int backend);
void rankscope_collective_end(uint32_t slot, int how);
}

namespace {

enum Backend { kNone = 0, kGloo = 1, kNccl = 2, kOther = 3 };

// Which group a collective is issued on. It goes with torch's own thread-local state from the thread that issues to
// the thread that runs.
struct IssuedOn : public c10::DebugInfoBase {
    explicit IssuedOn(uint32_t number) : group(number) {}
    uint32_t group;
};

// Of collectives that torch issues itself, out of Python's sight: those of DistributedDataParallel.
std::atomic<uint32_t> own_group{0};

struct Begun : public at::ObserverContext {
    Begun(uint64_t begin_ticks, uint32_t open_slot, int by) : begin(begin_ticks), slot(open_slot), backend(by) {}
    uint64_t begin;
    uint32_t slot;
    int backend;
};

int backend_of(const char *name)
{
    if (!std::strncmp(name, "gloo:", 5))
        return kGloo;
    if (!std::strncmp(name, "nccl:", 5))
        return kNccl;
    for (const char *other : {"mpi:", "ucc:", "xccl:"})
        if (!std::strncmp(name, other, std::strlen(other)))
            return kOther;
    return kNone;
}

bool between_two(const char *operation) { return !std::strncmp(operation, "send", 4) || !std::strncmp(operation, "recv", 4); }

uint64_t bytes_of(const at::RecordFunction &function)
{
    uint64_t bytes = 0;
    for (const c10::IValue &value : function.inputs())
        if (value.isTensor() && value.toTensor().defined())
            bytes += value.toTensor().nbytes();
    return bytes;
}

uint32_t group_of()
{
    auto *info = static_cast<IssuedOn *>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO_2));
    return info ? info->group : own_group.load(std::memory_order_relaxed);
}

std::unique_ptr<at::ObserverContext> collective_began(const at::RecordFunction &function, const char *name, int backend)
{
    uint64_t bytes = 0;
    try {
        bytes = bytes_of(function);
    } catch (...) {  // a tensor without a storage
    }
    const char *shown = backend == kGloo ? name + 5 : name;
    uint32_t slot = rankscope_collective_begin(shown, group_of(), bytes, -1, function.handle(), backend);
    return std::make_unique<Begun>(0, slot, backend);
}

std::unique_ptr<at::ObserverContext> began(const at::RecordFunction &function)
{
    const char *name = function.name();
    int backend = backend_of(name);
    if (backend && !between_two(std::strchr(name, ':') + 1))
        return collective_began(function, name, backend);
    uint64_t begin = rankscope_range_begin(name);
    return begin ? std::make_unique<Begun>(begin, 0, kNone) : nullptr;
}

void ended(const at::RecordFunction &function, at::ObserverContext *context)
{
    auto *begun = static_cast<Begun *>(context);
    if (!begun)
        return;
    if (begun->begin)
        rankscope_range_end(function.name(), begun->begin);
    else  // of NCCL torch tells when the operation was enqueued
        rankscope_collective_end(begun->slot, begun->backend == kNccl ? 2 : 0);
}

}  // namespace

extern "C" int rankscope_observer_start()
{
    try {
        auto callback = at::RecordFunctionCallback(began, ended).needsInputs(true).needsIds(true);
        callback.scopes({at::RecordScope::USER_SCOPE});
        at::addGlobalCallback(callback);
        return 1;
    } catch (...) {
        return 0;
    }
}

extern "C" void rankscope_observer_own_group(uint32_t group) { own_group.store(group, std::memory_order_relaxed); }

// Around a call that issues collectives on a group.
extern "C" int rankscope_observer_enter(uint32_t group)
{
    try {
        c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::TEST_INFO_2, std::make_shared<IssuedOn>(group));
        return 1;
    } catch (...) {
        return 0;
    }
}

extern "C" void rankscope_observer_leave()
{
    try {
        c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::TEST_INFO_2);
    } catch (...) {  // somebody else's is on top of ours: leave it to them
    }
}
