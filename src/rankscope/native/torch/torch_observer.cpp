// Observes torch: ranges of its user scope, and collectives with their asynchronous end. Compiled once against the
// torch in use (agent/build.py); everything is kept by librankscope.so, which is preloaded. Nothing here may throw.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

extern "C" {
uint64_t rankscope_range_begin(const char *name);
void rankscope_range_end(const char *name, uint64_t begin);
uint32_t rankscope_collective_begin(const char *name, uint32_t group, uint64_t bytes, int32_t root, uint64_t order,
                                    int backend);
void rankscope_collective_end(uint32_t slot, int how);
}

namespace {

enum Backend { kNone = 0, kGloo = 1, kNccl = 2, kOther = 3 };

// Which group a collective is issued on, and its root there (-1: none, or not known). It goes with torch's own
// thread-local state from the thread that issues to the thread that runs.
struct IssuedOn : public c10::DebugInfoBase {
    IssuedOn(uint32_t number, int32_t at) : group(number), root(at) {}
    uint32_t group;
    int32_t root;
};

// Of collectives that torch issues itself, out of Python's sight: those of DistributedDataParallel, functional ones.
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

IssuedOn issued_on()
{
    auto *info = static_cast<IssuedOn *>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO_2));
    return info ? *info : IssuedOn(own_group.load(std::memory_order_relaxed), -1);
}

std::unique_ptr<at::ObserverContext> collective_began(const at::RecordFunction &function, const char *name, int backend)
{
    uint64_t bytes = 0;
    try {
        bytes = bytes_of(function);
    } catch (...) {  // a tensor without a storage
    }
    const char *shown = backend == kGloo ? name + 5 : name;
    IssuedOn on = issued_on();
    uint32_t slot = rankscope_collective_begin(shown, on.group, bytes, on.root, function.handle(), backend);
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

// --- on which group C++ issues: buckets and buffers of DistributedDataParallel, functional collectives, compiled code

std::mutex groups_lock;
std::map<std::string, uint32_t> &groups()
{
    static auto *known = new std::map<std::string, uint32_t>;  // by torch's name; used until the process is gone
    return *known;
}

// Of a call of an operator of c10d; a group of 0 where it is not one that Python has told.
IssuedOn issued_by(const c10::OperatorHandle &op, const torch::jit::Stack &stack)
{
    IssuedOn on(0, -1);
    const auto &arguments = op.schema().arguments();
    size_t first = stack.size() - arguments.size();
    for (size_t i = 0; i < arguments.size(); i++) {
        const c10::IValue &value = stack[first + i];
        if (arguments[i].name() == "root_rank" && value.isInt())
            on.root = (int32_t)value.toInt();
        if (arguments[i].name() == "process_group" && value.isCustomClass()) {
            const std::string &name = value.toCustomClass<c10d::ProcessGroup>()->getGroupName();
            std::lock_guard<std::mutex> guard(groups_lock);
            auto found = groups().find(name);
            on.group = found == groups().end() ? 0 : found->second;
        }
    }
    return on;
}

// The key just above the kernels of the backends: whoever calls (autograd, compiled code, modes and subclasses in
// Python), it comes last, and nothing is registered there for these operators.
constexpr c10::DispatchKey kKey = c10::DispatchKey::BackendSelect;

// In the place of a fallthrough, and nothing but that, with the group told to whoever runs the collective.
void told_by_operator(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack)
{
    keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
    std::shared_ptr<IssuedOn> on;
    try {
        IssuedOn found = issued_by(op, *stack);
        if (found.group)
            on = std::make_shared<IssuedOn>(found);
    } catch (...) {  // a torch with other arguments
    }
    if (!on) {
        op.redispatchBoxed(keys, stack);
        return;
    }
    c10::DebugInfoGuard guard(c10::DebugInfoKind::TEST_INFO_2, on);
    op.redispatchBoxed(keys, stack);
}

void watch_operators()
{
    auto &dispatcher = c10::Dispatcher::singleton();
    auto *kept = new torch::Library(torch::Library::IMPL, "c10d", kKey, __FILE__, __LINE__);
    for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
        auto op = dispatcher.findSchema(name);
        if (name.name.rfind("c10d::", 0) || !op || op->hasKernelForDispatchKey(kKey))
            continue;
        for (const auto &argument : op->schema().arguments())
            if (argument.name() == "process_group")
                kept->impl(name.name.c_str(), torch::CppFunction::makeFromBoxedFunction<&told_by_operator>());
    }
}

}  // namespace

// A group that collectives may be issued on, by torch's name for it.
extern "C" void rankscope_observer_group(const char *name, uint32_t number)
{
    try {
        std::lock_guard<std::mutex> guard(groups_lock);
        groups()[name] = number;
    } catch (...) {
    }
}

extern "C" int rankscope_observer_start()
{
    try {
        watch_operators();
    } catch (...) {  // then only what Python issues has a group
    }
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
extern "C" int rankscope_observer_enter(uint32_t group, int32_t root)
{
    try {
        c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::TEST_INFO_2, std::make_shared<IssuedOn>(group, root));
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
