#include "import/pickle.h"

#include <bit>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "import/paged_array.h"
#include "import/pickle_builder.h"
#include "import/pickle_calls.h"
#include "import/pickle_opcode.h"

namespace cairn {
namespace {

// Runs the stack machine of a pickle. Every opcode is a step of a loop, so nesting costs no stack of ours.
class PickleReader {
 public:
  PickleReader(std::string_view bytes, const std::string& what, const PickleLimits& limits,
               const ReleasePickle* release = nullptr)
      : bytes_(bytes), what_(what), limits_(limits), release_(release) {}

  absl::StatusOr<PickleDocument> Read() {
    if (bytes_.size() < 2 || static_cast<PickleOpcode>(bytes_[0]) != PickleOpcode::kProto)
      return Bad("does not begin as a pickle");
    for (uint32_t steps = 1; !stopped_; ++steps) {
      opcode_at_ = at_;
      if (at_ == bytes_.size()) return Bad("is cut off");
      CAIRN_RETURN_IF_ERROR(Step(static_cast<PickleOpcode>(bytes_[at_++])));
      if ((steps % kStepsPerCheck == 0 || stopped_) && IsTooLarge()) {
        return MakeError(Reason::kMemoryLimit,
                         absl::StrCat(what_, ": the pickle needs more than ", limits_.memory_bytes, " bytes"),
                         {{"file", what_}});
      }
      if (release_ != nullptr && at_ - released_ >= kReleaseBytes) {
        released_ = at_;
        (*release_)(at_);
      }
    }
    return std::move(builder_).Finish(root_, at_);
  }

 private:
  using Value = PickleValue;
  using Kind = PickleKind;

  absl::Status Bad(std::string_view problem) const {
    return MakeError(
        Reason::kBadForeignFile,
        absl::StrCat(what_, ": the pickle ", std::string(problem), " (byte ", opcode_at_, " of ", bytes_.size(), ")"),
        {{"file", what_}, {"offset", absl::StrCat(opcode_at_)}});
  }

  // One opcode takes memory for at most what stands on the stack, so it is enough to look now and then.
  static constexpr uint32_t kStepsPerCheck = 256;
  static constexpr size_t kReleaseBytes = size_t{4} << 20;
  bool IsTooLarge() const {
    const uint64_t own = (stack_.size() + memo_.size()) * sizeof(Value) + marks_.size() * sizeof(size_t);
    return builder_.memory_bytes() + own > limits_.memory_bytes || builder_.IsFull();
  }

  absl::StatusOr<std::string_view> Take(uint64_t size) {
    if (size > bytes_.size() - at_) return Bad("is cut off");
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }

  // Reads a little-endian number of up to 8 bytes.
  absl::StatusOr<uint64_t> Number(size_t size) {
    if (size > bytes_.size() - at_) return Bad("is cut off");
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[at_ + i])) << (8 * i);
    at_ += size;
    return value;
  }

  // Returns a part of the input as it may stand in the document.
  std::string_view Kept(std::string_view part) { return release_ == nullptr ? part : builder_.Keep(part); }

  void Push(Value value) { stack_.push_back(value); }

  absl::StatusOr<Value> Pop() {
    if (stack_.size() <= Floor()) return Bad("takes from an empty stack");
    const Value value = stack_.back();
    stack_.pop_back();
    return value;
  }
  // Values below the last mark are out of reach, as in Python.
  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }

  absl::StatusOr<size_t> PopMark() {
    if (marks_.empty()) return Bad("misses a mark");
    const size_t mark = marks_.back();
    marks_.pop_back();
    return mark;
  }

  // Returns the values of the stack from `first` on.
  std::span<const Value> From(size_t first) const { return std::span(stack_).subspan(first); }

  // Makes a container of the values of the stack from `first` on, and takes them off.
  Value Collect(Kind kind, size_t first) {
    const Value container = builder_.Container(kind, From(first));
    stack_.resize(first);
    return container;
  }

  // Moves the values of the stack from `first` on into a container.
  void Extend(Value container, size_t first) {
    builder_.Extend(container, From(first));
    stack_.resize(first);
  }

  // Adds the values from `first` on to what stands below them: a container, or an object that Python would have made
  // one of (a subclass, a deque).
  absl::Status AddTo(Kind kind, size_t first) {
    if (first <= Floor()) return Bad("adds to nothing");
    const Value target = stack_[first - 1];
    if (kind == Kind::kDict && (stack_.size() - first) % 2 != 0) return Bad("has a key without a value");
    if (target.kind() == kind) {
      Extend(target, first);
      return absl::OkStatus();
    }
    if (target.kind() != Kind::kObject)
      return Bad(absl::StrCat("adds items to ", builder_.document().Describe(target)));
    PickleObject& object = builder_.object(target);
    if (object.items.kind() == Kind::kNone) {
      object.items = Collect(kind, first);
      return absl::OkStatus();
    }
    if (object.items.kind() != kind) return Bad("adds items of two kinds to one object");
    Extend(object.items, first);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string_view> Line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) return Bad("is cut off");
    CAIRN_ASSIGN_OR_RETURN(const std::string_view line, Take(end - at_));
    ++at_;
    return line;
  }

  absl::Status Put(uint64_t index) {
    if (stack_.size() <= Floor()) return Bad("remembers nothing");
    // Each value that is remembered takes bytes of the input, so this bounds the memo by the input's length.
    if (index >= bytes_.size()) return Bad("remembers a value under an impossible number");
    while (index >= memo_.size()) memo_.push_back(Value(Kind::kWideInt, -1));
    memo_[index] = stack_.back();
    return absl::OkStatus();
  }

  absl::Status Get(uint64_t index) {
    if (index >= memo_.size() || memo_[index] == Value(Kind::kWideInt, -1)) return Bad("recalls what it never stored");
    Push(memo_[index]);
    return absl::OkStatus();
  }

  // Pushes a little-endian two's complement number of any length.
  absl::Status PushLong(uint64_t size) {
    CAIRN_ASSIGN_OR_RETURN(const std::string_view bytes, Take(size));
    if (size > 8) {
      Push(builder_.WideInt());
      return absl::OkStatus();
    }
    uint64_t value = size > 0 && static_cast<uint8_t>(bytes.back()) >= 0x80 ? ~uint64_t{0} : 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    Push(builder_.Int(static_cast<int64_t>(value)));
    return absl::OkStatus();
  }

  absl::Status Call() {
    CAIRN_ASSIGN_OR_RETURN(const Value arguments, Pop());
    CAIRN_ASSIGN_OR_RETURN(const Value callable, Pop());
    if (arguments.kind() != Kind::kTuple) return Bad("calls with arguments that are no tuple");
    const std::optional<Value> result = ResultOfCall(callable, arguments, builder_);
    if (!result.has_value()) return Bad("has bytes that are no Latin-1");
    Push(*result);
    return absl::OkStatus();
  }

  absl::Status Build() {
    CAIRN_ASSIGN_OR_RETURN(const Value state, Pop());
    CAIRN_ASSIGN_OR_RETURN(const Value target, Pop());
    if (target.kind() == Kind::kDict) {  // attributes of an OrderedDict, as _metadata of a module's state
      Push(target);
      return absl::OkStatus();
    }
    if (target.kind() != Kind::kObject)
      return Bad(absl::StrCat("sets attributes of ", builder_.document().Describe(target)));
    builder_.object(target).state = state;
    Push(target);
    return absl::OkStatus();
  }

  absl::Status Step(PickleOpcode opcode);
  absl::Status StepLiteral(PickleOpcode opcode);

  const std::string_view bytes_;
  const std::string& what_;
  const PickleLimits limits_;
  const ReleasePickle* const release_;  // null: the document points into the input
  size_t released_ = 0;
  size_t at_ = 0;
  size_t opcode_at_ = 0;
  bool stopped_ = false;
  std::optional<Value> empty_tuple_;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  PagedArray<Value> memo_;
  PickleBuilder builder_;
  Value root_;
};

absl::Status PickleReader::Step(PickleOpcode opcode) {
  using enum PickleOpcode;
  switch (opcode) {
    case kProto: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t protocol, Number(1));
      if (protocol < 2 || protocol > 5) return Bad(absl::StrCat("has protocol ", protocol, ", not 2 to 5"));
      return absl::OkStatus();
    }
    case kFrame: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t size, Number(8));
      return size > bytes_.size() - at_ ? Bad("is cut off") : absl::OkStatus();
    }
    case kStop: {
      CAIRN_ASSIGN_OR_RETURN(root_, Pop());
      if (!stack_.empty() || !marks_.empty()) return Bad("ends too early");
      stopped_ = true;
      return absl::OkStatus();
    }
    case kMark:
      marks_.push_back(stack_.size());
      return absl::OkStatus();
    case kPop:
      if (stack_.size() == Floor() && !marks_.empty()) return PopMark().status();
      return Pop().status();
    case kPopMark: {
      CAIRN_ASSIGN_OR_RETURN(const size_t mark, PopMark());
      stack_.resize(mark);
      return absl::OkStatus();
    }
    case kDup:
      if (stack_.size() <= Floor()) return Bad("takes from an empty stack");
      Push(stack_.back());
      return absl::OkStatus();
    case kMemoize:
      return Put(memo_.size());
    case kBinPut:
    case kLongBinPut: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t index, Number(opcode == kBinPut ? 1 : 4));
      return Put(index);
    }
    case kBinGet:
    case kLongBinGet: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t index, Number(opcode == kBinGet ? 1 : 4));
      return Get(index);
    }
    case kEmptyTuple:  // nothing changes a tuple, so one is enough
      if (!empty_tuple_) empty_tuple_ = Collect(Kind::kTuple, stack_.size());
      Push(*empty_tuple_);
      return absl::OkStatus();
    case kEmptyList:
      Push(Collect(Kind::kList, stack_.size()));
      return absl::OkStatus();
    case kEmptyDict:
      Push(Collect(Kind::kDict, stack_.size()));
      return absl::OkStatus();
    case kEmptySet:
      Push(Collect(Kind::kSet, stack_.size()));
      return absl::OkStatus();
    case kTuple1:
    case kTuple2:
    case kTuple3: {
      const size_t count = opcode == kTuple1 ? 1 : opcode == kTuple2 ? 2 : 3;
      if (stack_.size() < Floor() + count) return Bad("takes from an empty stack");
      Push(Collect(Kind::kTuple, stack_.size() - count));
      return absl::OkStatus();
    }
    case kTupleOp:
    case kListOp:
    case kDictOp:
    case kFrozenSet: {
      CAIRN_ASSIGN_OR_RETURN(const size_t mark, PopMark());
      if (opcode == kDictOp && (stack_.size() - mark) % 2 != 0) return Bad("has a key without a value");
      Push(Collect(opcode == kTupleOp  ? Kind::kTuple
                   : opcode == kListOp ? Kind::kList
                   : opcode == kDictOp ? Kind::kDict
                                       : Kind::kSet,
                   mark));
      return absl::OkStatus();
    }
    case kAppend:
      if (stack_.size() < Floor() + 1) return Bad("takes from an empty stack");
      return AddTo(Kind::kList, stack_.size() - 1);
    case kSetItem:
      if (stack_.size() < Floor() + 2) return Bad("takes from an empty stack");
      return AddTo(Kind::kDict, stack_.size() - 2);
    case kAppends:
    case kSetItems:
    case kAddItems: {
      CAIRN_ASSIGN_OR_RETURN(const size_t mark, PopMark());
      return AddTo(opcode == kAppends ? Kind::kList : opcode == kSetItems ? Kind::kDict : Kind::kSet, mark);
    }
    case kGlobalOp: {
      CAIRN_ASSIGN_OR_RETURN(const std::string_view module, Line());
      CAIRN_ASSIGN_OR_RETURN(const std::string_view name, Line());
      Push(builder_.Global(Kept(module), Kept(name)));
      return absl::OkStatus();
    }
    case kStackGlobal: {
      CAIRN_ASSIGN_OR_RETURN(const Value name, Pop());
      CAIRN_ASSIGN_OR_RETURN(const Value module, Pop());
      if (name.kind() != Kind::kText || module.kind() != Kind::kText) return Bad("names a class by what is no text");
      Push(builder_.Global(*builder_.document().Text(module), *builder_.document().Text(name)));
      return absl::OkStatus();
    }
    case kReduce:
      return Call();
    case kNewObj: {
      CAIRN_ASSIGN_OR_RETURN(const Value arguments, Pop());
      CAIRN_ASSIGN_OR_RETURN(const Value type, Pop());
      Push(builder_.Object(type, arguments));
      return absl::OkStatus();
    }
    case kNewObjEx: {
      CAIRN_ASSIGN_OR_RETURN(const Value keywords, Pop());
      CAIRN_ASSIGN_OR_RETURN(const Value arguments, Pop());
      CAIRN_ASSIGN_OR_RETURN(const Value type, Pop());
      Push(arguments);
      Push(keywords);
      const Value both = Collect(Kind::kTuple, stack_.size() - 2);
      Push(builder_.Object(type, both));
      return absl::OkStatus();
    }
    case kBuild:
      return Build();
    case kBinPersId: {
      CAIRN_ASSIGN_OR_RETURN(const Value name, Pop());
      Push(builder_.Persistent(name));
      return absl::OkStatus();
    }
    default:
      return StepLiteral(opcode);
  }
}

absl::Status PickleReader::StepLiteral(PickleOpcode opcode) {
  using enum PickleOpcode;
  switch (opcode) {
    case kNoneOp:
      Push(Value());
      return absl::OkStatus();
    case kNewTrue:
    case kNewFalse:
      Push(Value(Kind::kBool, opcode == kNewTrue ? 1 : 0));
      return absl::OkStatus();
    case kBinInt: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t value, Number(4));
      Push(builder_.Int(static_cast<int32_t>(static_cast<uint32_t>(value))));
      return absl::OkStatus();
    }
    case kBinInt1:
    case kBinInt2: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t value, Number(opcode == kBinInt1 ? 1 : 2));
      Push(builder_.Int(static_cast<int64_t>(value)));
      return absl::OkStatus();
    }
    case kLong1:
    case kLong4: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t size, Number(opcode == kLong1 ? 1 : 4));
      return PushLong(size);
    }
    case kBinFloat: {
      CAIRN_ASSIGN_OR_RETURN(const std::string_view bytes, Take(8));
      uint64_t bits = 0;  // big-endian, unlike everything else
      for (const char byte : bytes) bits = bits << 8 | static_cast<uint8_t>(byte);
      Push(builder_.Float(std::bit_cast<double>(bits)));
      return absl::OkStatus();
    }
    case kShortBinUnicode:
    case kBinUnicode:
    case kBinUnicode8: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t size, Number(opcode == kShortBinUnicode ? 1
                                                         : opcode == kBinUnicode    ? 4
                                                                                    : 8));
      CAIRN_ASSIGN_OR_RETURN(const std::string_view text, Take(size));
      Push(builder_.Text(Kept(text)));
      return absl::OkStatus();
    }
    case kShortBinBytes:
    case kShortBinString:
    case kBinBytes:
    case kBinString:
    case kBinBytes8:
    case kByteArray8: {
      const bool is_short = opcode == kShortBinBytes || opcode == kShortBinString;
      const bool is_long = opcode == kBinBytes8 || opcode == kByteArray8;
      CAIRN_ASSIGN_OR_RETURN(const uint64_t size, Number(is_short ? 1 : is_long ? 8 : 4));
      CAIRN_ASSIGN_OR_RETURN(const std::string_view bytes, Take(size));
      Push(builder_.Bytes(Kept(bytes)));
      return absl::OkStatus();
    }
    default:
      return MakeError(
          Reason::kUnsupported,
          absl::StrCat(what_, ": the pickle has the opcode ", absl::StrFormat("0x%02x", static_cast<uint8_t>(opcode)),
                       " at byte ", opcode_at_, ", which no checkpoint of PyTorch needs"),
          {{"file", what_}, {"offset", absl::StrCat(opcode_at_)}});
  }
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
