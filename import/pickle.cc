#include "import/pickle.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// The opcodes of pickletools that protocols 2 to 5 write.
enum Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNoneOp = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobalOp = 'c',
  kDictOp = 'd',
  kEmptyDict = '}',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kListOp = 'l',
  kEmptyList = ']',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTupleOp = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

constexpr int64_t kLeastShortInt = -(int64_t{1} << 59);
constexpr int64_t kMostShortInt = (int64_t{1} << 59) - 1;

}  // namespace

std::optional<int64_t> PickleDocument::Int(PickleValue value) const {
  if (value.kind() == PickleKind::kInt) return value.payload();
  if (value.kind() == PickleKind::kWideInt) return wide_[static_cast<size_t>(value.payload())];
  return std::nullopt;
}

std::optional<bool> PickleDocument::Bool(PickleValue value) const {
  if (value.kind() != PickleKind::kBool) return std::nullopt;
  return value.payload() != 0;
}

std::optional<double> PickleDocument::Float(PickleValue value) const {
  if (value.kind() != PickleKind::kFloat) return std::nullopt;
  return floats_[static_cast<size_t>(value.payload())];
}

std::optional<std::string_view> PickleDocument::Text(PickleValue value) const {
  if (value.kind() != PickleKind::kText) return std::nullopt;
  return texts_[static_cast<size_t>(value.payload())];
}

std::optional<std::string_view> PickleDocument::Bytes(PickleValue value) const {
  if (value.kind() != PickleKind::kBytes) return std::nullopt;
  return texts_[static_cast<size_t>(value.payload())];
}

std::optional<std::string> PickleDocument::Global(PickleValue value) const {
  if (value.kind() != PickleKind::kGlobal) return std::nullopt;
  const Name& global = globals_[static_cast<size_t>(value.payload())];
  return absl::StrCat(std::string(global.module), ".", std::string(global.name));
}

bool PickleDocument::IsGlobal(PickleValue value, std::string_view module, std::string_view name) const {
  if (value.kind() != PickleKind::kGlobal) return false;
  const Name& global = globals_[static_cast<size_t>(value.payload())];
  return global.module == module && global.name == name;
}

const PickleObject* PickleDocument::Object(PickleValue value) const {
  return value.kind() == PickleKind::kObject ? &objects_[static_cast<size_t>(value.payload())] : nullptr;
}

const PickleObject* PickleDocument::Object(PickleValue value, std::string_view module, std::string_view name) const {
  const PickleObject* object = Object(value);
  return object != nullptr && IsGlobal(object->callable, module, name) ? object : nullptr;
}

std::optional<PickleValue> PickleDocument::Persistent(PickleValue value) const {
  if (value.kind() != PickleKind::kPersistent) return std::nullopt;
  return persistent_[static_cast<size_t>(value.payload())];
}

size_t PickleDocument::Size(PickleValue value) const {
  if (!IsContainer(value)) return 0;
  size_t size = 0;
  for (size_t n = static_cast<size_t>(value.payload());; n = containers_[n].next) {
    size += containers_[n].count;
    if (containers_[n].next == kLast) break;
  }
  return value.kind() == PickleKind::kDict ? size / 2 : size;
}

std::vector<PickleValue> PickleDocument::Elements(PickleValue value, size_t most) const {
  std::vector<PickleValue> elements;
  ForEach(value, [&](PickleValue each) {
    if (elements.size() < most) elements.push_back(each);
  });
  return elements;
}

std::optional<PickleValue> PickleDocument::Find(PickleValue value, std::string_view key) const {
  if (const PickleObject* object = Object(value)) value = object->state;
  std::optional<PickleValue> found;
  ForEachPair(value, [&](PickleValue each, PickleValue item) {
    if (Text(each) == key) found = item;
  });
  return found;
}

std::string PickleDocument::Describe(PickleValue value) const {
  switch (value.kind()) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return "a bool";
    case PickleKind::kInt:
    case PickleKind::kWideInt:
      return "an int";
    case PickleKind::kFloat:
      return "a float";
    case PickleKind::kText:
      return "a str";
    case PickleKind::kBytes:
      return "bytes";
    case PickleKind::kTuple:
      return "a tuple";
    case PickleKind::kList:
      return "a list";
    case PickleKind::kDict:
      return "a dict";
    case PickleKind::kSet:
      return "a set";
    case PickleKind::kGlobal:
      return Global(value)->substr(0, 200);
    case PickleKind::kObject:
      // What rebuilds an object from its class, as protocol 2 writes it for enumerations and namespaces.
      if (const PickleObject* object = Object(value); object->callable.kind() == PickleKind::kGlobal) {
        const std::string callable = *Global(object->callable);
        const std::vector<PickleValue> first = Elements(object->arguments, 1);
        if (callable == "copyreg._reconstructor" && first.size() == 1 && first[0].kind() == PickleKind::kGlobal) {
          return Global(first[0])->substr(0, 200);
        }
        return callable.substr(0, 200);
      }
      return "an object";
    case PickleKind::kPersistent:
      return "a storage";
  }
  return "a value";
}

// The stack machine of a pickle. Every opcode is a step of a loop, so nesting costs no stack of ours.
class PickleReader {
 public:
  PickleReader(std::string_view bytes, const std::string& what, const PickleLimits& limits)
      : bytes_(bytes), what_(what), limits_(limits) {}

  absl::StatusOr<PickleDocument> Read() {
    if (bytes_.size() < 2 || static_cast<uint8_t>(bytes_[0]) != kProto) return Bad("does not begin as a pickle");
    for (uint32_t steps = 1; !stopped_; ++steps) {
      opcode_at_ = at_;
      if (at_ == bytes_.size()) return Bad("is cut off");
      CAIRN_RETURN_IF_ERROR(Step(static_cast<uint8_t>(bytes_[at_++])));
      if ((steps % kStepsPerCheck == 0 || stopped_) && IsTooLarge()) {
        return MakeError(Reason::kMemoryLimit,
                         absl::StrCat(what_, ": the pickle needs more than ", limits_.memory_bytes, " bytes"),
                         {{"file", what_}});
      }
    }
    document_.consumed_ = at_;
    return std::move(document_);
  }

 private:
  using Value = PickleValue;
  using Kind = PickleKind;
  using Container = PickleDocument::Container;

  absl::Status Bad(std::string_view problem) const {
    return MakeError(
        Reason::kBadForeignFile,
        absl::StrCat(what_, ": the pickle ", std::string(problem), " (byte ", opcode_at_, " of ", bytes_.size(), ")"),
        {{"file", what_}, {"offset", absl::StrCat(opcode_at_)}});
  }

  // One opcode takes memory for at most what stands on the stack, so it is enough to look now and then.
  static constexpr uint32_t kStepsPerCheck = 256;
  bool IsTooLarge() const {
    return MemoryBytes() > limits_.memory_bytes || document_.cells_.size() > UINT32_MAX / 2 ||
           document_.containers_.size() > UINT32_MAX / 2;
  }
  uint64_t MemoryBytes() const {
    return document_.owned_bytes_ +
           (document_.cells_.size() + document_.persistent_.size() + stack_.size() + memo_.size()) * sizeof(Value) +
           document_.containers_.size() * sizeof(Container) + document_.objects_.size() * sizeof(PickleObject) +
           document_.texts_.size() * sizeof(std::string_view) +
           document_.globals_.size() * 2 * sizeof(std::string_view) +
           (2 * document_.wide_.size() + document_.floats_.size() + marks_.size()) * sizeof(double);
  }

  absl::StatusOr<std::string_view> Take(uint64_t size) {
    if (size > bytes_.size() - at_) return Bad("is cut off");
    const std::string_view taken = bytes_.substr(at_, size);
    at_ += size;
    return taken;
  }

  // A little-endian number of up to 8 bytes.
  absl::StatusOr<uint64_t> Number(size_t size) {
    if (size > bytes_.size() - at_) return Bad("is cut off");
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[at_ + i])) << (8 * i);
    at_ += size;
    return value;
  }

  void Push(Value value) { stack_.push_back(value); }
  void Push(Kind kind, size_t index) { Push(Value(kind, static_cast<int64_t>(index))); }

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

  // Makes a container of the values of the stack from `first` on, and takes them off.
  Value Collect(Kind kind, size_t first) {
    Container container;
    container.begin = static_cast<uint32_t>(document_.cells_.size());
    container.count = static_cast<uint32_t>(stack_.size() - first);
    for (size_t i = first; i < stack_.size(); ++i) document_.cells_.push_back(stack_[i]);
    stack_.resize(first);
    document_.containers_.push_back(container);
    return {kind, static_cast<int64_t>(document_.containers_.size() - 1)};
  }

  // Moves the values of the stack from `first` on into a container.
  void Extend(Value container, size_t first) {
    if (first == stack_.size()) return;
    auto& containers = document_.containers_;
    const auto head = static_cast<size_t>(container.payload());
    const size_t tail = containers[head].tail == PickleDocument::kLast ? head : containers[head].tail;
    const auto end = static_cast<uint32_t>(document_.cells_.size());
    const auto count = static_cast<uint32_t>(stack_.size() - first);
    for (size_t i = first; i < stack_.size(); ++i) document_.cells_.push_back(stack_[i]);
    stack_.resize(first);
    if (containers[tail].count == 0 || containers[tail].begin + containers[tail].count == end) {
      if (containers[tail].count == 0) containers[tail].begin = end;
      containers[tail].count += count;
      return;
    }
    Container part;
    part.begin = end;
    part.count = count;
    containers.push_back(part);
    containers[tail].next = static_cast<uint32_t>(containers.size() - 1);
    containers[head].tail = containers[tail].next;
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
    if (target.kind() != Kind::kObject) return Bad(absl::StrCat("adds items to ", document_.Describe(target)));
    PickleObject& object = document_.objects_[static_cast<size_t>(target.payload())];
    if (object.items.kind() == Kind::kNone) {
      object.items = Collect(kind, first);
      return absl::OkStatus();
    }
    if (object.items.kind() != kind) return Bad("adds items of two kinds to one object");
    Extend(object.items, first);
    return absl::OkStatus();
  }

  absl::Status PushText(Kind kind, uint64_t size) {
    CAIRN_ASSIGN_OR_RETURN(const std::string_view text, Take(size));
    PushView(kind, text);
    return absl::OkStatus();
  }
  void PushView(Kind kind, std::string_view text) {
    document_.texts_.push_back(text);
    Push(kind, document_.texts_.size() - 1);
  }

  void PushInt(int64_t value) {
    if (value >= kLeastShortInt && value <= kMostShortInt) return Push(Value(Kind::kInt, value));
    document_.wide_.push_back(value);
    Push(Kind::kWideInt, document_.wide_.size() - 1);
  }

  // A little-endian two's complement number of any length.
  absl::Status PushLong(uint64_t size) {
    CAIRN_ASSIGN_OR_RETURN(const std::string_view bytes, Take(size));
    if (size > 8) {
      document_.wide_.push_back(std::nullopt);
      Push(Kind::kWideInt, document_.wide_.size() - 1);
      return absl::OkStatus();
    }
    uint64_t value = size > 0 && static_cast<uint8_t>(bytes.back()) >= 0x80 ? ~uint64_t{0} : 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    PushInt(static_cast<int64_t>(value));
    return absl::OkStatus();
  }

  void PushGlobal(std::string_view module, std::string_view name) {
    document_.globals_.push_back({module, name});
    Push(Kind::kGlobal, document_.globals_.size() - 1);
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

  void PushObject(Value callable, Value arguments) {
    PickleObject object;
    object.callable = callable;
    object.arguments = arguments;
    document_.objects_.push_back(object);
    Push(Kind::kObject, document_.objects_.size() - 1);
  }

  // Notes a call. The few whose result is plain data become that data.
  absl::Status Call() {
    CAIRN_ASSIGN_OR_RETURN(const Value arguments, Pop());
    CAIRN_ASSIGN_OR_RETURN(const Value callable, Pop());
    if (arguments.kind() != Kind::kTuple) return Bad("calls with arguments that are no tuple");
    const size_t count = document_.Size(arguments);
    if (document_.IsGlobal(callable, "collections", "OrderedDict") && count == 0) {
      Push(Collect(Kind::kDict, stack_.size()));
      return absl::OkStatus();
    }
    const std::vector<Value> first = document_.Elements(arguments, 2);
    if (document_.IsGlobal(callable, "torch", "Size") && count == 1 && first[0].kind() == Kind::kTuple) {
      Push(first[0]);
      return absl::OkStatus();
    }
    // Protocol 2 has no bytes: it writes the text that they are in Latin-1.
    if (document_.IsGlobal(callable, "_codecs", "encode") && count == 2 && first[0].kind() == Kind::kText &&
        document_.Text(first[1]) == "latin1") {
      return PushLatin1(*document_.Text(first[0]));
    }
    PushObject(callable, arguments);
    return absl::OkStatus();
  }

  // Pushes the bytes that a text of code points below 256 stands for.
  absl::Status PushLatin1(std::string_view text) {
    auto bytes = std::make_unique<std::string>();
    for (size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<uint8_t>(text[i]);
      if (byte < 0x80) {
        bytes->push_back(text[i]);
      } else if ((byte == 0xc2 || byte == 0xc3) && i + 1 < text.size() &&
                 (static_cast<uint8_t>(text[i + 1]) & 0xc0) == 0x80) {
        bytes->push_back(static_cast<char>((byte & 3) << 6 | (static_cast<uint8_t>(text[++i]) & 0x3f)));
      } else {
        return Bad("has bytes that are no Latin-1");
      }
    }
    document_.owned_bytes_ += bytes->size() + sizeof(std::string);
    PushView(Kind::kBytes, *bytes);
    document_.owned_.push_back(std::move(bytes));
    return absl::OkStatus();
  }

  absl::Status Build() {
    CAIRN_ASSIGN_OR_RETURN(const Value state, Pop());
    CAIRN_ASSIGN_OR_RETURN(const Value target, Pop());
    if (target.kind() == Kind::kDict) {  // attributes of an OrderedDict, as _metadata of a module's state
      Push(target);
      return absl::OkStatus();
    }
    if (target.kind() != Kind::kObject) return Bad(absl::StrCat("sets attributes of ", document_.Describe(target)));
    document_.objects_[static_cast<size_t>(target.payload())].state = state;
    Push(target);
    return absl::OkStatus();
  }

  absl::Status Step(uint8_t opcode);
  absl::Status StepLiteral(uint8_t opcode);

  const std::string_view bytes_;
  const std::string& what_;
  const PickleLimits limits_;
  size_t at_ = 0;
  size_t opcode_at_ = 0;
  bool stopped_ = false;
  std::optional<Value> empty_tuple_;
  std::vector<Value> stack_;
  std::vector<size_t> marks_;  // heights of the stack
  PagedArray<Value> memo_;
  PickleDocument document_;
};

absl::Status PickleReader::Step(uint8_t opcode) {
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
      CAIRN_ASSIGN_OR_RETURN(document_.root_, Pop());
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
      const size_t count = opcode - kTuple1 + size_t{1};
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
      PushGlobal(module, name);
      return absl::OkStatus();
    }
    case kStackGlobal: {
      CAIRN_ASSIGN_OR_RETURN(const Value name, Pop());
      CAIRN_ASSIGN_OR_RETURN(const Value module, Pop());
      if (name.kind() != Kind::kText || module.kind() != Kind::kText) return Bad("names a class by what is no text");
      PushGlobal(*document_.Text(module), *document_.Text(name));
      return absl::OkStatus();
    }
    case kReduce:
      return Call();
    case kNewObj: {
      CAIRN_ASSIGN_OR_RETURN(const Value arguments, Pop());
      CAIRN_ASSIGN_OR_RETURN(const Value type, Pop());
      PushObject(type, arguments);
      return absl::OkStatus();
    }
    case kNewObjEx: {
      CAIRN_ASSIGN_OR_RETURN(const Value keywords, Pop());
      CAIRN_ASSIGN_OR_RETURN(const Value arguments, Pop());
      CAIRN_ASSIGN_OR_RETURN(const Value type, Pop());
      Push(arguments);
      Push(keywords);
      const Value both = Collect(Kind::kTuple, stack_.size() - 2);
      PushObject(type, both);
      return absl::OkStatus();
    }
    case kBuild:
      return Build();
    case kBinPersId: {
      CAIRN_ASSIGN_OR_RETURN(const Value name, Pop());
      document_.persistent_.push_back(name);
      Push(Kind::kPersistent, document_.persistent_.size() - 1);
      return absl::OkStatus();
    }
    default:
      return StepLiteral(opcode);
  }
}

absl::Status PickleReader::StepLiteral(uint8_t opcode) {
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
      PushInt(static_cast<int32_t>(static_cast<uint32_t>(value)));
      return absl::OkStatus();
    }
    case kBinInt1:
    case kBinInt2: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t value, Number(opcode == kBinInt1 ? 1 : 2));
      PushInt(static_cast<int64_t>(value));
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
      document_.floats_.push_back(std::bit_cast<double>(bits));
      Push(Kind::kFloat, document_.floats_.size() - 1);
      return absl::OkStatus();
    }
    case kShortBinUnicode:
    case kBinUnicode:
    case kBinUnicode8: {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t size, Number(opcode == kShortBinUnicode ? 1
                                                         : opcode == kBinUnicode    ? 4
                                                                                    : 8));
      return PushText(Kind::kText, size);
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
      return PushText(Kind::kBytes, size);
    }
    default:
      return MakeError(Reason::kUnsupported,
                       absl::StrCat(what_, ": the pickle has the opcode ", absl::StrFormat("0x%02x", opcode),
                                    " at byte ", opcode_at_, ", which no checkpoint of PyTorch needs"),
                       {{"file", what_}, {"offset", absl::StrCat(opcode_at_)}});
  }
}

absl::StatusOr<PickleDocument> ReadPickle(std::string_view bytes, const std::string& what, const PickleLimits& limits) {
  return PickleReader(bytes, what, limits).Read();
}

}  // namespace cairn
