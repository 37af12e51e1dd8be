#include "foreign/read/pickle/pickle.h"

#include <bit>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "foreign/read/pickle/paged_array.h"
#include "foreign/read/pickle/pickle_builder.h"
#include "foreign/read/pickle/pickle_calls.h"
#include "foreign/read/pickle/pickle_opcode.h"

namespace cairn {
namespace {

// Runs the stack machine of a pickle. Every opcode is one step of a loop, so nested values do not use the stack of the
// thread. The first fault ends the loop. The step with the fault may still change the document, but nobody gets to see
// that.
class PickleReader {
 public:
  PickleReader(std::string_view bytes, const std::string& what, const PickleLimits& limits,
               const ReleasePickle* release = nullptr)
      : bytes_(bytes), what_(what), limits_(limits), release_(release) {}

  absl::StatusOr<PickleDocument> Read() {
    if (bytes_.size() < 2 || static_cast<PickleOpcode>(bytes_[0]) != PickleOpcode::kProto)
      Bad("does not begin as a pickle");
    while (!ended_) {
      for (int steps = 0; steps < kStepsPerCheck && !ended_; ++steps) Step();
      Check();
    }
    if (!fault_.ok()) return fault_;
    return std::move(builder_).Finish(root_, at_);
  }

 private:
  using Value = PickleValue;
  using Kind = PickleKind;

  void Fail(absl::Status fault) {
    if (fault_.ok()) fault_ = std::move(fault);
    ended_ = true;
  }
  void Bad(std::string_view problem) {
    Fail(MakeError(
        Reason::kBadForeignFile,
        absl::StrCat(what_, ": the pickle ", std::string(problem), " (byte ", opcode_at_, " of ", bytes_.size(), ")"),
        {{"file", what_}, {"offset", absl::StrCat(opcode_at_)}}));
  }

  // One opcode takes at most as much memory as the stack has values, so the limit is checked only now and then. Only
  // Put can leave a gap of any size, so it checks the limit itself.
  static constexpr int kStepsPerCheck = 256;
  static constexpr size_t kReleaseBytes = size_t{4} << 20;
  void Check() {
    const uint64_t own = (stack_.size() + memo_.size()) * sizeof(Value) + marks_.size() * sizeof(size_t);
    if (builder_.memory_bytes() + own > limits_.memory_bytes || builder_.IsFull()) FailTooLarge();
    if (release_ != nullptr && at_ - released_ >= kReleaseBytes) {
      released_ = at_;
      (*release_)(at_);
    }
  }

  void FailTooLarge() {
    Fail(MakeError(Reason::kMemoryLimit,
                   absl::StrCat(what_, ": the pickle needs more than ", limits_.memory_bytes, " bytes"),
                   {{"file", what_}}));
  }

  // Returns the next bytes; none after a fault.
  std::string_view Take(uint64_t size) {
    if (size > bytes_.size() - at_) {
      Bad("is cut off");
      return {};
    }
    const std::string_view taken(bytes_.data() + at_, size);
    at_ += size;
    return taken;
  }

  // Reads a little-endian number of up to 8 bytes; 0 after a fault.
  template <size_t kSize>
  uint64_t Number() {
    if (kSize > bytes_.size() - at_) {
      Bad("is cut off");
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < kSize; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[at_ + i])) << (8 * i);
    at_ += kSize;
    return value;
  }

  // Returns a part of the input, as a copy if the document must not point into the input.
  std::string_view Kept(std::string_view part) { return release_ == nullptr ? part : builder_.Keep(part); }

  void Push(Value value) { stack_.push_back(value); }

  // Values below the last mark are out of reach, as in Python.
  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }

  bool Has(size_t values) {
    if (stack_.size() - Floor() >= values) return true;
    Bad("takes from an empty stack");
    return false;
  }

  // Returns None after a fault.
  Value Pop() {
    if (!Has(1)) return Value();
    const Value value = stack_.back();
    stack_.pop_back();
    return value;
  }

  // Returns the height of the stack at the last mark; the present height after a fault.
  size_t PopMark() {
    if (marks_.empty()) {
      Bad("misses a mark");
      return stack_.size();
    }
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  std::span<const Value> From(size_t first) const { return std::span(stack_).subspan(first); }

  // Makes a container of the values of the stack from `first` on, and takes them off.
  Value Collect(Kind kind, size_t first) {
    const Value container = builder_.Container(kind, From(first));
    stack_.resize(first);
    return container;
  }

  // Puts a tuple in the place of the last values.
  void PushTuple(size_t values) {
    if (Has(values)) Push(Collect(Kind::kTuple, stack_.size() - values));
  }

  // Moves the values of the stack from `first` on into a container.
  void Extend(Value container, size_t first) {
    builder_.Extend(container, From(first));
    stack_.resize(first);
  }

  // Adds the values from `first` on to the container below them, or to an object that is a container in Python (a
  // subclass, a deque).
  void AddTo(Kind kind, size_t first) {
    if (first <= Floor()) return Bad("adds to nothing");
    const Value target = stack_[first - 1];
    if (kind == Kind::kDict && (stack_.size() - first) % 2 != 0) return Bad("has a key without a value");
    if (target.kind() == kind) return Extend(target, first);
    if (target.kind() != Kind::kObject)
      return Bad(absl::StrCat("adds items to ", builder_.document().Describe(target)));
    PickleObject& object = builder_.object(target);
    if (object.items.kind() == Kind::kNone) {
      object.items = Collect(kind, first);
    } else if (object.items.kind() == kind) {
      Extend(object.items, first);
    } else {
      Bad("adds items of two kinds to one object");
    }
  }

  std::string_view Line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) {
      Bad("is cut off");
      return {};
    }
    const std::string_view line = Take(end - at_);
    ++at_;
    return line;
  }

  void Put(uint64_t index) {
    if (!Has(1)) return;
    // Each remembered value takes bytes of the input, so the input's length limits the memo.
    if (index >= bytes_.size()) return Bad("remembers a value under an impossible number");
    // This opcode alone may leave a gap of any size.
    if (index > memo_.size() && index >= limits_.memory_bytes / sizeof(Value)) return FailTooLarge();
    while (index > memo_.size()) memo_.push_back(kNeverStored);
    if (index == memo_.size()) {
      memo_.push_back(stack_.back());
    } else {
      memo_[index] = stack_.back();
    }
  }

  void Get(uint64_t index) {
    if (index >= memo_.size() || memo_[index] == kNeverStored) return Bad("recalls a value that it never stored");
    Push(memo_[index]);
  }

  // Pushes a little-endian two's complement number of any length.
  void PushLong(uint64_t size) {
    const std::string_view bytes = Take(size);
    if (bytes.size() > 8) return Push(builder_.WideInt());
    uint64_t value = !bytes.empty() && static_cast<uint8_t>(bytes.back()) >= 0x80 ? ~uint64_t{0} : 0;
    for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    Push(builder_.Int(static_cast<int64_t>(value)));
  }

  void PushFloat() {
    uint64_t bits = 0;  // big-endian, unlike everything else
    for (const char byte : Take(8)) bits = bits << 8 | static_cast<uint8_t>(byte);
    Push(builder_.Float(std::bit_cast<double>(bits)));
  }

  void PushText(uint64_t size) { Push(builder_.Text(Kept(Take(size)))); }
  void PushBytes(uint64_t size) { Push(builder_.Bytes(Kept(Take(size)))); }

  // Puts a container of all values behind the last mark in their place.
  void CollectMarked(Kind kind) {
    const size_t mark = PopMark();
    if (kind == Kind::kDict && (stack_.size() - mark) % 2 != 0) return Bad("has a key without a value");
    Push(Collect(kind, mark));
  }

  void NameClass() {
    const Value name = Pop();
    const Value module = Pop();
    if (name.kind() != Kind::kText || module.kind() != Kind::kText)
      return Bad("names a class by a value that is no text");
    Push(builder_.Global(*builder_.document().Text(module), *builder_.document().Text(name)));
  }

  void Call() {
    const Value arguments = Pop();
    const Value callable = Pop();
    if (arguments.kind() != Kind::kTuple) return Bad("calls with arguments that are no tuple");
    const std::optional<Value> result = calls_.Result(callable, arguments);
    if (!result.has_value()) return Bad("has bytes that are no Latin-1");
    Push(*result);
  }

  void Build() {
    const Value state = Pop();
    if (!Has(1)) return;
    const Value target = stack_.back();
    if (target.kind() == Kind::kDict) return;  // attributes of an OrderedDict, as _metadata of a module's state
    if (target.kind() != Kind::kObject)
      return Bad(absl::StrCat("sets attributes of ", builder_.document().Describe(target)));
    builder_.object(target).state = state;
  }

  void Step();

  // A value that never occurs in a document.
  static constexpr Value kNeverStored = Value(Kind::kWideInt, -1);

  const std::string_view bytes_;
  const std::string& what_;
  const PickleLimits limits_;
  const ReleasePickle* const release_;  // null: the document points into the input
  size_t released_ = 0;
  size_t at_ = 0;
  size_t opcode_at_ = 0;
  bool ended_ = false;  // by the pickle's end or by a fault
  absl::Status fault_;
  std::optional<Value> empty_tuple_;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  PagedArray<Value> memo_;
  PickleBuilder builder_;
  PickleCalls calls_ = PickleCalls(builder_);
  Value root_;
};

void PickleReader::Step() {
  using enum PickleOpcode;
  opcode_at_ = at_;
  if (at_ == bytes_.size()) return Bad("is cut off");
  const auto opcode = static_cast<PickleOpcode>(bytes_[at_++]);
  switch (opcode) {
    case kProto:
      if (const uint64_t protocol = Number<1>(); protocol < 2 || protocol > 5)
        Bad(absl::StrCat("has protocol ", protocol, ", not 2 to 5"));
      return;
    case kFrame:
      if (Number<8>() > bytes_.size() - at_) Bad("is cut off");
      return;
    case kStop:
      root_ = Pop();
      if (!stack_.empty() || !marks_.empty()) return Bad("ends too early");
      ended_ = true;
      return;
    case kMark:
      return marks_.push_back(stack_.size());
    case kPop:
      if (stack_.size() == Floor() && !marks_.empty()) {
        PopMark();
      } else {
        Pop();
      }
      return;
    case kPopMark:
      return stack_.resize(PopMark());
    case kDup:
      if (Has(1)) Push(stack_.back());
      return;
    case kMemoize:
      return Put(memo_.size());
    case kBinPut:
      return Put(Number<1>());
    case kLongBinPut:
      return Put(Number<4>());
    case kBinGet:
      return Get(Number<1>());
    case kLongBinGet:
      return Get(Number<4>());
    case kEmptyTuple:  // nothing changes a tuple, so one is enough
      if (!empty_tuple_) empty_tuple_ = builder_.Container(Kind::kTuple, {});
      return Push(*empty_tuple_);
    case kEmptyList:
      return Push(builder_.Container(Kind::kList, {}));
    case kEmptyDict:
      return Push(builder_.Container(Kind::kDict, {}));
    case kEmptySet:
      return Push(builder_.Container(Kind::kSet, {}));
    case kTuple1:
      return PushTuple(1);
    case kTuple2:
      return PushTuple(2);
    case kTuple3:
      return PushTuple(3);
    case kTupleOp:
      return CollectMarked(Kind::kTuple);
    case kListOp:
      return CollectMarked(Kind::kList);
    case kDictOp:
      return CollectMarked(Kind::kDict);
    case kFrozenSet:
      return CollectMarked(Kind::kSet);
    case kAppend:
      if (Has(1)) AddTo(Kind::kList, stack_.size() - 1);
      return;
    case kSetItem:
      if (Has(2)) AddTo(Kind::kDict, stack_.size() - 2);
      return;
    case kAppends:
      return AddTo(Kind::kList, PopMark());
    case kSetItems:
      return AddTo(Kind::kDict, PopMark());
    case kAddItems:
      return AddTo(Kind::kSet, PopMark());
    case kGlobalOp: {
      const std::string_view module = Line();
      const std::string_view name = Line();
      return Push(builder_.Global(Kept(module), Kept(name)));
    }
    case kStackGlobal:
      return NameClass();
    case kReduce:
      return Call();
    case kNewObj: {
      const Value arguments = Pop();
      const Value type = Pop();
      return Push(builder_.Object(type, arguments));
    }
    case kNewObjEx: {  // type, arguments, keywords
      PushTuple(2);
      const Value both = Pop();
      const Value type = Pop();
      return Push(builder_.Object(type, both));
    }
    case kBuild:
      return Build();
    case kBinPersId:
      return Push(builder_.Persistent(Pop()));
    case kNoneOp:
      return Push(Value());
    case kNewTrue:
    case kNewFalse:
      return Push(Value(Kind::kBool, opcode == kNewTrue ? 1 : 0));
    case kBinInt:
      return Push(builder_.Int(static_cast<int32_t>(static_cast<uint32_t>(Number<4>()))));
    case kBinInt1:
      return Push(builder_.Int(static_cast<int64_t>(Number<1>())));
    case kBinInt2:
      return Push(builder_.Int(static_cast<int64_t>(Number<2>())));
    case kLong1:
      return PushLong(Number<1>());
    case kLong4:
      return PushLong(Number<4>());
    case kBinFloat:
      return PushFloat();
    case kShortBinUnicode:
      return PushText(Number<1>());
    case kBinUnicode:
      return PushText(Number<4>());
    case kBinUnicode8:
      return PushText(Number<8>());
    case kShortBinBytes:
    case kShortBinString:
      return PushBytes(Number<1>());
    case kBinBytes:
    case kBinString:
      return PushBytes(Number<4>());
    case kBinBytes8:
    case kByteArray8:
      return PushBytes(Number<8>());
  }
  Fail(MakeError(
      Reason::kUnsupported,
      absl::StrCat(what_, ": the pickle has the opcode ", absl::StrFormat("0x%02x", static_cast<uint8_t>(opcode)),
                   " at byte ", opcode_at_, ", which no checkpoint of PyTorch needs"),
      {{"file", what_}, {"offset", absl::StrCat(opcode_at_)}}));
}

}  // namespace

absl::StatusOr<PickleDocument> ReadPickle(std::string_view bytes, const std::string& what, const PickleLimits& limits) {
  return PickleReader(bytes, what, limits).Read();
}

absl::StatusOr<PickleDocument> ConsumePickle(std::string_view bytes, const std::string& what,
                                             const PickleLimits& limits, const ReleasePickle& release) {
  return PickleReader(bytes, what, limits, &release).Read();
}

}  // namespace cairn
