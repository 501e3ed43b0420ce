// Observes torch: ranges of its user scope, collectives with their asynchronous end, and in sampled steps what its
// operators compute. Compiled once against the
// torch in use (agent/build.py); everything is kept by librankscope.so, which is preloaded. Nothing here may throw.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

extern "C" {
uint64_t rankscope_range_begin(const char *name);
void rankscope_range_end(const char *name, uint64_t begin);
uint32_t rankscope_collective_begin(const char *name, uint32_t group, uint64_t bytes, int32_t root, uint64_t order,
                                    int backend);
void rankscope_collective_end(uint32_t slot, int how);
void rankscope_collective_issued();
uint64_t rankscope_ticks();
void rankscope_blocked(uint64_t begin);
void rankscope_operators_watched_by(void (*observer)(int on));
int rankscope_operators_wanted();
void rankscope_operator(int device, int precision, int is_convolution, uint64_t flops, int is_recomputed);
void rankscope_operator_unseen(const char *name);
int rankscope_own_calls(const char *symbol, void *ours, void **original);
}

// Their headers would double the time that this takes to compile. Weak: a torch without them is observed, too.
namespace torch::autograd {
int get_current_graph_task_id() __attribute__((weak));
}
namespace c10d {
struct ProcessGroup {
    const std::string &getGroupName() const __attribute__((weak));
};
}  // namespace c10d

namespace {

enum Backend { kNone = 0, kGloo = 1, kNccl = 2, kOther = 3, kWaitsTold = 16 };

// Which group a collective is issued on, and its root there (-1: none, or not known). It goes with torch's own
// thread-local state from the thread that issues to the thread that runs.
struct IssuedOn : public c10::DebugInfoBase {
    IssuedOn(uint32_t number, int32_t at, bool told = false) : group(number), root(at), waits_told(told) {}
    uint32_t group;
    int32_t root;
    bool waits_told;  // Python issued it, and tells when it waits for it
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

const IssuedOn *issued_by_thread()
{
    return static_cast<IssuedOn *>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO_2));
}

IssuedOn issued_on()
{
    const IssuedOn *info = issued_by_thread();
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
    uint32_t slot = rankscope_collective_begin(shown, on.group, bytes, on.root, function.handle(),
                                               on.waits_told ? backend | kWaitsTold : backend);
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

// --- what the operators of a sampled step compute

using Inputs = c10::ArrayRef<const c10::IValue>;

// As layout.h numbers them.
enum Precision { kFp64 = 0, kFp32 = 1, kFp16 = 3, kBf16 = 4, kFp8 = 5, kInt8 = 6, kUnrated = 7 };

uint64_t product(c10::IntArrayRef sizes, size_t from)
{
    uint64_t all = 1;
    for (size_t i = from; i < sizes.size(); i++)
        all *= (uint64_t)sizes[i];
    return all;
}

c10::IntArrayRef sizes_of(const c10::IValue &value) { return value.toTensor().sizes(); }

// A list that may stand for as many equal numbers as there are dimensions.
int64_t at_dimension(const std::vector<int64_t> &list, size_t i) { return list.size() == 1 ? list[0] : list.at(i); }

// Two operations, a product and a sum, for each pair of numbers that meet.
uint64_t matrices(const c10::IValue &a, const c10::IValue &b)
{
    auto left = sizes_of(a), right = sizes_of(b);
    return 2 * product(left, 0) * (uint64_t)right.at(right.size() - 1);
}

uint64_t mm(Inputs in) { return matrices(in[0], in[1]); }
uint64_t addmm(Inputs in) { return matrices(in[1], in[2]); }

// For each place of the output (of the input, where it is transposed), and each filter: as many as the filter has.
uint64_t convolution_of(const c10::IValue &input, const c10::IValue &weight, Inputs rest)
{
    auto x = sizes_of(input), w = sizes_of(weight);
    uint64_t places = (uint64_t)x.at(0);
    if (rest[3].toBool()) {
        places *= product(x, 2);
    } else {
        auto stride = rest[0].toIntVector(), padding = rest[1].toIntVector(), dilation = rest[2].toIntVector();
        for (size_t i = 0; i + 2 < x.size(); i++) {
            int64_t reach = at_dimension(dilation, i) * (w[i + 2] - 1) + 1;
            places *= (uint64_t)((x[i + 2] + 2 * at_dimension(padding, i) - reach) / at_dimension(stride, i) + 1);
        }
    }
    return 2 * places * product(w, 0);
}

uint64_t convolution(Inputs in) { return convolution_of(in[0], in[1], in.slice(3)); }

// Each gradient costs what the convolution itself costs.
uint64_t convolution_backward(Inputs in)
{
    auto mask = in[10].toBoolList();
    return convolution_of(in[1], in[2], in.slice(4)) * (uint64_t)((bool)mask[0] + (bool)mask[1]);
}

// Every query with every key, masked or not, as torch.utils.flop_counter has it.
uint64_t pairs(Inputs in, uint64_t of_query, uint64_t of_value)
{
    auto q = sizes_of(in[0]), k = sizes_of(in[1]), v = sizes_of(in[2]);
    uint64_t met = (uint64_t)(q.at(0) * q.at(1) * q.at(2) * k.at(2));
    return 2 * met * (of_query * (uint64_t)q.at(3) + of_value * (uint64_t)v.at(3));
}

uint64_t attention(Inputs in) { return pairs(in, 1, 1); }
uint64_t attention_backward(Inputs in) { return pairs(in.slice(1), 3, 2); }  // the scores once more, and four gradients

uint64_t tokens(const c10::IValue &input)
{
    auto x = sizes_of(input);
    return product(x, 0) / std::max<uint64_t>(1, (uint64_t)x.at(x.size() - 1));
}

uint64_t numbers_in_matrices(const c10::IValue &weights)
{
    uint64_t numbers = 0;
    for (const at::Tensor &weight : weights.toTensorVector())
        numbers += weight.dim() == 2 ? (uint64_t)weight.numel() : 0;
    return numbers;
}

uint64_t cudnn_rnn(Inputs in) { return 2 * tokens(in[0]) * numbers_in_matrices(in[1]); }
uint64_t cudnn_rnn_backward(Inputs in) { return 2 * cudnn_rnn(in); }
uint64_t mkldnn_rnn(Inputs in)
{
    return 2 * tokens(in[0]) * (product(sizes_of(in[1]), 0) + product(sizes_of(in[2]), 0));
}
uint64_t mkldnn_rnn_backward(Inputs in) { return 2 * mkldnn_rnn(in); }

struct Formula {
    uint64_t (*flops)(Inputs);      // null: it computes as much, and its shapes do not say how much
    size_t tensor = 0;              // whose type and device are those of the work
    bool is_convolution = false;
};

// Those that others are made of: linear, matmul, einsum, Conv2d and MultiheadAttention come down to these.
const std::unordered_map<std::string_view, Formula> &formulas()
{
    static const auto *known = new std::unordered_map<std::string_view, Formula>{
        {"mm", {mm}}, {"bmm", {mm}}, {"_int_mm", {mm}}, {"_scaled_mm", {mm}}, {"_scaled_mm_v2", {mm}},
        {"addmm", {addmm, 1}}, {"_addmm_activation", {addmm, 1}}, {"baddbmm", {addmm, 1}},
        {"convolution", {convolution, 0, true}}, {"_convolution", {convolution, 0, true}},
        {"convolution_backward", {convolution_backward, 1, true}},
        {"_scaled_dot_product_flash_attention", {attention}},
        {"_scaled_dot_product_efficient_attention", {attention}},
        {"_scaled_dot_product_cudnn_attention", {attention}},
        {"_scaled_dot_product_flash_attention_for_cpu", {attention}},
        {"_scaled_dot_product_fused_attention_overrideable", {attention}},
        {"_scaled_dot_product_flash_attention_backward", {attention_backward, 1}},
        {"_scaled_dot_product_efficient_attention_backward", {attention_backward, 1}},
        {"_scaled_dot_product_cudnn_attention_backward", {attention_backward, 1}},
        {"_scaled_dot_product_flash_attention_for_cpu_backward", {attention_backward, 1}},
        {"_scaled_dot_product_fused_attention_overrideable_backward", {attention_backward, 1}},
        {"_cudnn_rnn", {cudnn_rnn, 0, true}}, {"_cudnn_rnn_backward", {cudnn_rnn_backward, 0, true}},
        {"mkldnn_rnn_layer", {mkldnn_rnn, 0, true}}, {"mkldnn_rnn_layer_backward", {mkldnn_rnn_backward, 0, true}},
        {"_flash_attention_forward", {}}, {"_flash_attention_backward", {}}, {"_efficient_attention_forward", {}},
        {"_efficient_attention_backward", {}}, {"_grouped_mm", {}}, {"_scaled_grouped_mm", {}},
        {"_scaled_grouped_mm_v2", {}}, {"_weight_int8pack_mm", {}}, {"_weight_int4pack_mm", {}},
        {"_cslt_sparse_mm", {}}, {"_sparse_semi_structured_mm", {}}, {"_sparse_semi_structured_addmm", {}},
        {"miopen_rnn", {}}, {"_native_multi_head_attention", {}}, {"_transformer_encoder_layer_fwd", {}},
        {"cudnn_convolution_relu", {}}, {"cudnn_convolution_add_relu", {}},
    };
    return *known;
}

// Of torch itself: they move and count, or are made of operators that are counted.
bool computes_elsewhere(std::string_view space)
{
    for (std::string_view known : {"autograd", "prim", "prims", "profiler", "c10d", "_c10d_functional", "_dtensor", "fsdp", "inductor",
                                   "streams", "torchvision", "symm_mem", "debugprims", "rngprims"})
        if (space == known)
            return false;
    return true;
}

int precision_of(at::ScalarType type)
{
    switch (type) {
    case at::kDouble: case at::kComplexDouble: return kFp64;
    case at::kFloat: case at::kComplexFloat: return kFp32;
    case at::kHalf: return kFp16;
    case at::kBFloat16: return kBf16;
    case at::kChar: case at::kByte: return kInt8;
    default: return std::string_view(c10::toString(type)).substr(0, 6) == "Float8" ? kFp8 : kUnrated;
    }
}

thread_local uint64_t counted;      // operators of this thread, so far
thread_local uint32_t open_counted; // those under way

// An operator that is counted when it has ended, unless one inside it was: then it was only the way there (autocast,
// a tensor subclass, a mode in Python), and what is inside has the shapes that are really computed.
struct Counting : public at::ObserverContext {
    const char *unseen = nullptr;
    bool is_open = false, is_convolution = false, is_recomputed = false;
    int device = -1, precision = kUnrated, exceptions = 0;
    uint64_t flops = 0, counted_before = 0;
};

// Inside backward gradients are computed without being differentiated themselves; what is, is forward once more.
bool is_recomputing()
{
    return torch::autograd::get_current_graph_task_id && c10::GradMode::is_enabled()
           && torch::autograd::get_current_graph_task_id() != -1;
}

void measure(Counting &into, const Formula &formula, Inputs in)
{
    const at::Tensor &tensor = in.at(formula.tensor).toTensor();
    if (tensor.layout() != at::kStrided)
        throw std::invalid_argument("of a sparse matrix");
    into.flops = formula.flops(in) * (tensor.is_complex() ? 4 : 1);
    into.precision = precision_of(tensor.scalar_type());
    into.device = tensor.device().is_cpu() ? -1 : std::max<int>(0, tensor.device().index());
    into.is_convolution = formula.is_convolution;
    into.is_recomputed = is_recomputing();
    into.flops = tensor.is_meta() ? 0 : into.flops;
}

std::atomic<uint64_t> operators_handle{0};

std::unique_ptr<at::ObserverContext> operator_began(const at::RecordFunction &function)
{
    if (!rankscope_operators_wanted()) {    // in the child of a fork nobody has switched it off
        at::disableCallback(operators_handle);
        return nullptr;
    }
    std::string_view name = function.name();
    size_t colons = name.find("::");
    if (colons == std::string_view::npos)
        return nullptr;
    const Formula *formula = nullptr;
    if (name.substr(0, colons) == "aten") {
        auto known = formulas().find(name.substr(colons + 2));
        if (known == formulas().end())
            return nullptr;
        formula = &known->second;
    } else if (!computes_elsewhere(name.substr(0, colons))) {
        return nullptr;
    }
    if (open_counted && !(formula && formula->flops))
        return nullptr;  // counted already, by what it is a part of
    auto begun = std::make_unique<Counting>();
    begun->counted_before = counted;
    begun->exceptions = std::uncaught_exceptions();
    if (formula && formula->flops) {
        try {
            measure(*begun, *formula, function.inputs());
            begun->is_open = true;
            open_counted++;
        } catch (...) {  // nested or symbolic sizes, a torch with other arguments
            begun->unseen = function.name();
        }
    } else {
        begun->unseen = function.name();
    }
    return begun;
}

void operator_ended(const at::RecordFunction &, at::ObserverContext *context)
{
    auto *begun = static_cast<Counting *>(context);
    if (!begun)
        return;
    open_counted -= begun->is_open;
    if (counted != begun->counted_before || std::uncaught_exceptions() > begun->exceptions)
        return;  // it failed, or was stopped before it computed: activation checkpointing does so
    counted += begun->is_open;
    if (begun->unseen)
        rankscope_operator_unseen(begun->unseen);
    else if (begun->flops)
        rankscope_operator(begun->device, begun->precision, begun->is_convolution, begun->flops, begun->is_recomputed);
}

// --- who observes a thread

void (*set_observers)(const at::RecordFunctionTLS &) = nullptr;  // torch's own

// torch gives every node of a backward pass the observers of the thread that began it, and takes them away again. Each
// time it works out anew who observes what, which takes longer the more observers there are, and nearly always nothing
// has changed.
void set_other_observers(const at::RecordFunctionTLS &wanted)
{
    const at::RecordFunctionTLS &now = at::get_record_function_tls_();
    if (!wanted.sorted_tls_callbacks_.empty() || !now.sorted_tls_callbacks_.empty()
        || wanted.tls_record_function_enabled_ != now.tls_record_function_enabled_)
        set_observers(wanted);
}

void watch_operators_now(int on)
{
    try {
        if (on && !operators_handle) {
            auto callback = at::RecordFunctionCallback(operator_began, operator_ended).needsInputs(true);
            callback.scopes({at::RecordScope::FUNCTION});
            operators_handle = at::addGlobalCallback(callback);
        } else if (on) {
            at::reenableCallback(operators_handle);
        } else if (operators_handle) {
            at::disableCallback(operators_handle);
        }
    } catch (...) {
    }
}

// --- on which group C++ issues: buckets and buffers of DistributedDataParallel, functional collectives, compiled code

std::mutex groups_lock;
std::map<std::string, uint32_t> &groups()
{
    static auto *known = new std::map<std::string, uint32_t>;  // by torch's name; used until the process is gone
    return *known;
}

bool has_group_names()
{
    const std::string &(c10d::ProcessGroup::*name)() const = &c10d::ProcessGroup::getGroupName;
    return name != nullptr;
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
            auto held = value.toObject()->getSlot(0).toCapsule();  // as toCustomClass finds it
            const auto *group = reinterpret_cast<const c10d::ProcessGroup *>(held.get());
            std::lock_guard<std::mutex> guard(groups_lock);
            auto found = groups().find(has_group_names() ? group->getGroupName() : std::string());
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
    rankscope_collective_issued();
    try {
        IssuedOn found = issued_by(op, *stack);
        const IssuedOn *python = issued_by_thread();
        found.waits_told = python && python->waits_told;
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

// Functional collectives (DTensor, compiled code) are waited for by an operator of their own.
void told_wait(const c10::OperatorHandle &op, c10::DispatchKeySet keys, torch::jit::Stack *stack)
{
    uint64_t begin = rankscope_ticks();
    op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
    rankscope_blocked(begin);
}

void watch_operators()
{
    auto &dispatcher = c10::Dispatcher::singleton();
    auto *kept = new std::vector<c10::RegistrationHandleRAII>;     // until the process is gone
    for (const c10::OperatorName &name : dispatcher.getAllOpNames()) {
        auto op = dispatcher.findSchema(name);
        if (!op || op->hasKernelForDispatchKey(kKey))
            continue;
        if (name.name == "_c10d_functional::wait_tensor")
            kept->push_back(dispatcher.registerImpl(
                name, kKey, c10::KernelFunction::makeFromBoxedFunction<&told_wait>(), {}, nullptr, "rankscope"));
        if (name.name.rfind("c10d::", 0))
            continue;
        for (const auto &argument : op->schema().arguments())
            if (argument.name() == "process_group")
                kept->push_back(dispatcher.registerImpl(
                    name, kKey, c10::KernelFunction::makeFromBoxedFunction<&told_by_operator>(), {}, nullptr, "rankscope"));
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
        rankscope_operators_watched_by(watch_operators_now);
        rankscope_own_calls("_ZN2at24set_record_function_tls_ERKNS_17RecordFunctionTLSE",
                            reinterpret_cast<void *>(set_other_observers), reinterpret_cast<void **>(&set_observers));
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
        c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::TEST_INFO_2, std::make_shared<IssuedOn>(group, root, true));
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
