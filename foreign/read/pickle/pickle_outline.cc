#include "foreign/read/pickle/pickle_outline.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "foreign/read/pickle/pickle_opcode.h"

namespace cairn {
namespace {

constexpr uint64_t kWindow = uint64_t{1} << 14;
constexpr uint64_t kMostClassName = 4096;

// Reads a file from begin to end, a window at a time, and skips bytes that are not needed.
class WindowedFile {
 public:
  WindowedFile(uint64_t bytes, const ReadRange& read) : bytes_(bytes), read_(read) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_ - at_; }
  // Returns the next `size` bytes; the file must have as many. The view is valid until the next call.
  absl::StatusOr<std::string_view> Peek(uint64_t size) {
    if (at_ < begin_ || at_ + size > begin_ + window_.size()) {
      CAIRN_ASSIGN_OR_RETURN(window_, read_(at_, std::min(left(), std::max(size, kWindow))));
      begin_ = at_;
    }
    return std::string_view(window_).substr(at_ - begin_, size);
  }
  void Skip(uint64_t size) { at_ += size; }

 private:
  const uint64_t bytes_;
  const ReadRange& read_;
  std::string window_;
  uint64_t begin_ = 0;  // of the window
  uint64_t at_ = 0;
};

class Outliner {
 public:
  Outliner(uint64_t bytes, const ReadRange& read, const std::string& what, uint64_t most)
      : file_(bytes, read), bytes_(bytes), what_(what), most_(most) {}

  absl::StatusOr<std::string> Outline() {
    while (!stopped_) {
      opcode_at_ = file_.at();
      if (file_.left() == 0) return Bad("is cut off");
      CAIRN_ASSIGN_OR_RETURN(const std::string_view next, file_.Peek(1));
      CAIRN_RETURN_IF_ERROR(Step(static_cast<PickleOpcode>(next[0])));
      if (outline_.size() > most_) return TooLong();
    }
    return std::move(outline_);
  }

 private:
  absl::Status Bad(std::string_view problem) const {
    return MakeError(
        Reason::kBadForeignFile,
        absl::StrCat(what_, ": the pickle ", std::string(problem), " (byte ", opcode_at_, " of ", bytes_, ")"),
        {{"file", what_}, {"offset", absl::StrCat(opcode_at_)}});
  }
  absl::Status TooLong() const {
    return MakeError(Reason::kMemoryLimit,
                     absl::StrCat(what_, ": the pickle, without its arrays, has more than ", most_, " bytes"),
                     {{"file", what_}});
  }

  absl::Status Copy(uint64_t size) {
    if (size > file_.left()) return Bad("is cut off");
    if (size > most_) return TooLong();
    CAIRN_ASSIGN_OR_RETURN(const std::string_view bytes, file_.Peek(size));
    outline_.append(bytes);
    file_.Skip(size);
    return absl::OkStatus();
  }

  // Returns the little-endian number of `width` bytes behind the opcode.
  absl::StatusOr<uint64_t> Number(uint64_t width) {
    if (1 + width > file_.left()) return Bad("is cut off");
    CAIRN_ASSIGN_OR_RETURN(const std::string_view bytes, file_.Peek(1 + width));
    uint64_t number = 0;
    for (uint64_t i = width; i-- > 0;) number = number << 8 | static_cast<uint8_t>(bytes[1 + i]);
    return number;
  }

  // Copies an opcode, the length behind it (`width` bytes), and as many bytes as the length says.
  absl::Status CopyCounted(uint64_t width) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t size, Number(width));
    if (size > file_.left()) return Bad("is cut off");
    return Copy(1 + width + size);
  }

  // Copies an opcode and the `lines` that follow it.
  absl::Status CopyLines(int lines) {
    for (uint64_t size = 2;; ++size) {
      if (size > file_.left()) return Bad("is cut off");
      if (size > kMostClassName) return Bad("names a class too long");
      CAIRN_ASSIGN_OR_RETURN(const std::string_view bytes, file_.Peek(size));
      if (bytes.back() == '\n' && --lines == 0) return Copy(size);
    }
  }

  void AppendNumber(uint64_t number) {
    outline_ += static_cast<char>(PickleOpcode::kLong1);
    outline_ += '\x08';
    for (int i = 0; i < 8; ++i) outline_ += static_cast<char>(number >> (8 * i));
  }

  absl::Status ReplaceBytes(uint64_t width) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t size, Number(width));
    file_.Skip(1 + width);
    if (size > file_.left()) return Bad("is cut off");
    AppendNumber(file_.at());
    AppendNumber(size);
    outline_ += static_cast<char>(PickleOpcode::kTuple2);
    outline_ += static_cast<char>(PickleOpcode::kBinPersId);
    file_.Skip(size);
    return absl::OkStatus();
  }

  absl::Status Step(PickleOpcode opcode);

  WindowedFile file_;
  const uint64_t bytes_;
  const std::string& what_;
  const uint64_t most_;
  uint64_t opcode_at_ = 0;
  bool stopped_ = false;
  std::string outline_;
};

absl::Status Outliner::Step(PickleOpcode opcode) {
  using enum PickleOpcode;
  switch (opcode) {
    case kStop:
      stopped_ = true;
      return Copy(1);
    case kMark:
    case kPop:
    case kPopMark:
    case kDup:
    case kNoneOp:
    case kReduce:
    case kAppend:
    case kBuild:
    case kDictOp:
    case kEmptyDict:
    case kAppends:
    case kListOp:
    case kEmptyList:
    case kSetItem:
    case kTupleOp:
    case kEmptyTuple:
    case kSetItems:
    case kNewObj:
    case kTuple1:
    case kTuple2:
    case kTuple3:
    case kNewTrue:
    case kNewFalse:
    case kEmptySet:
    case kAddItems:
    case kFrozenSet:
    case kNewObjEx:
    case kStackGlobal:
    case kMemoize:
      return Copy(1);
    case kProto:
    case kBinInt1:
    case kBinGet:
    case kBinPut:
      return Copy(2);
    case kBinInt2:
      return Copy(3);
    case kBinInt:
    case kLongBinGet:
    case kLongBinPut:
      return Copy(5);
    case kBinFloat:
      return Copy(9);
    case kFrame:  // not copied: it has the length of the next part, which is different in the copy
      if (file_.left() < 9) return Bad("is cut off");
      file_.Skip(9);
      return absl::OkStatus();
    case kLong1:
    case kShortBinUnicode:
      return CopyCounted(1);
    case kLong4:
    case kBinUnicode:
      return CopyCounted(4);
    case kBinUnicode8:
      return CopyCounted(8);
    case kShortBinBytes:
    case kShortBinString:
      return ReplaceBytes(1);
    case kBinBytes:
    case kBinString:
      return ReplaceBytes(4);
    case kBinBytes8:
    case kByteArray8:
      return ReplaceBytes(8);
    case kGlobalOp:
      return CopyLines(2);  // module and name
    case kBinPersId:
      break;
  }
  return MakeError(
      Reason::kUnsupported,
      absl::StrCat(what_, ": the pickle has the opcode ", absl::StrFormat("0x%02x", static_cast<uint8_t>(opcode)),
                   " at byte ", opcode_at_, ", which no file of arrays needs"),
      {{"file", what_}, {"offset", absl::StrCat(opcode_at_)}});
}

}  // namespace

absl::StatusOr<std::string> OutlinePickle(uint64_t bytes, const ReadRange& read, const std::string& what,
                                          uint64_t most) {
  return Outliner(bytes, read, what, most).Outline();
}

std::optional<PickledBytes> PlaceOfBytes(const PickleDocument& document, PickleValue value) {
  const std::optional<PickleValue> place = document.Persistent(value);
  if (!place.has_value()) return std::nullopt;
  const std::vector<PickleValue> numbers = document.Elements(*place, 2);
  if (numbers.size() != 2) return std::nullopt;
  const auto offset = document.Int(numbers[0]), bytes = document.Int(numbers[1]);
  if (!offset.has_value() || !bytes.has_value()) return std::nullopt;
  return PickledBytes{static_cast<uint64_t>(*offset), static_cast<uint64_t>(*bytes)};
}

}  // namespace cairn
