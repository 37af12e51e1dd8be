#include "foreign/write/torch/pickle_writer.h"

#include <bit>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

// Opcodes, by their names in pickletools.
constexpr char kProto = '\x80', kStop = '.', kNone = 'N', kTrue = '\x88', kFalse = '\x89', kBinInt1 = 'K',
               kBinInt2 = 'M', kBinInt = 'J', kLong1 = '\x8a', kLong4 = '\x8b', kBinFloat = 'G', kBinUnicode = 'X',
               kGlobal = 'c', kEmptyTuple = ')', kEmptyList = ']', kEmptyDict = '}', kMark = '(', kTuple = 't',
               kTuple1 = '\x85', kTuple2 = '\x86', kTuple3 = '\x87', kAppends = 'e', kSetItems = 'u', kReduce = 'R',
               kNewObj = '\x81', kBuild = 'b', kBinPersId = 'Q', kBinPut = 'q', kLongBinPut = 'r', kBinGet = 'h',
               kLongBinGet = 'j', kShortBinBytes = 'C', kBinBytes = 'B', kBinBytes8 = '\x8e';

// Returns the shortest two's complement of a decimal number, its lowest byte first.
std::string TwosComplement(std::string_view digits) {
  const bool negative = digits.starts_with('-');
  if (negative) digits.remove_prefix(1);
  std::vector<uint8_t> bytes = {0};
  for (const char digit : digits) {
    unsigned carry = static_cast<unsigned>(digit - '0');
    for (uint8_t& byte : bytes) {
      carry += byte * 10u;
      byte = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
    if (carry > 0) bytes.push_back(static_cast<uint8_t>(carry));
  }
  bytes.push_back(0);
  if (negative) {
    unsigned carry = 1;
    for (uint8_t& byte : bytes) {
      carry += static_cast<uint8_t>(~byte);
      byte = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
  }
  // A byte that only repeats the sign is not needed.
  while (bytes.size() > 1 && bytes.back() == (bytes[bytes.size() - 2] & 0x80 ? 0xff : 0)) bytes.pop_back();
  return {bytes.begin(), bytes.end()};
}

}  // namespace

PickleWriter::PickleWriter(int protocol) : protocol_(protocol), text_({kProto, static_cast<char>(protocol)}) {}

void PickleWriter::Number(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xff);
}

bool PickleWriter::Recall(const std::string& key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) return false;
  text_ += found->second < 256 ? kBinGet : kLongBinGet;
  Number(found->second, found->second < 256 ? 1 : 4);
  return true;
}

void PickleWriter::Remember(const std::string& key) {
  const auto number = static_cast<uint32_t>(memo_.size());
  memo_.emplace(key, number);
  text_ += number < 256 ? kBinPut : kLongBinPut;
  Number(number, number < 256 ? 1 : 4);
}

void PickleWriter::None() { text_ += kNone; }
void PickleWriter::Bool(bool value) { text_ += value ? kTrue : kFalse; }
void PickleWriter::EmptyTuple() { text_ += kEmptyTuple; }
void PickleWriter::EmptyList() { text_ += kEmptyList; }
void PickleWriter::EmptyDict() { text_ += kEmptyDict; }
void PickleWriter::Mark() { text_ += kMark; }
void PickleWriter::Tuple() { text_ += kTuple; }
void PickleWriter::AppendItems() { text_ += kAppends; }
void PickleWriter::SetItems() { text_ += kSetItems; }
void PickleWriter::Reduce() { text_ += kReduce; }
void PickleWriter::NewObject() { text_ += kNewObj; }
void PickleWriter::Build() { text_ += kBuild; }
void PickleWriter::PersistentId() { text_ += kBinPersId; }

void PickleWriter::Int(int64_t value) {
  if (value >= 0 && value < 0x100) {
    text_ += kBinInt1;
    Number(static_cast<uint64_t>(value), 1);
  } else if (value >= 0 && value < 0x10000) {
    text_ += kBinInt2;
    Number(static_cast<uint64_t>(value), 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    text_ += kBinInt;
    Number(static_cast<uint64_t>(value), 4);
  } else {
    Decimal(absl::StrCat(value));
  }
}

void PickleWriter::Decimal(std::string_view digits) {
  const std::string bytes = TwosComplement(digits);
  text_ += bytes.size() < 256 ? kLong1 : kLong4;
  Number(bytes.size(), bytes.size() < 256 ? 1 : 4);
  text_ += bytes;
}

void PickleWriter::Float(double value) {
  text_ += kBinFloat;
  const auto bits = std::bit_cast<uint64_t>(value);
  for (int i = 7; i >= 0; --i) text_ += static_cast<char>(bits >> (8 * i) & 0xff);
}

void PickleWriter::Binary(std::string_view text) {
  text_ += kBinUnicode;
  Number(text.size(), 4);
  text_ += text;
}

void PickleWriter::Text(std::string_view utf8) {
  std::string key = absl::StrCat("t", absl::string_view(utf8.data(), utf8.size()));
  if (Recall(key)) return;
  Binary(utf8);
  Remember(key);
}

void PickleWriter::Bytes(std::string_view bytes) {
  if (protocol_ >= 4) {
    text_ += bytes.size() < 256 ? kShortBinBytes : kBinBytes;
    Number(bytes.size(), bytes.size() < 256 ? 1 : 4);
    text_ += bytes;
    return;
  }
  Global("_codecs", "encode");
  Mark();
  std::string latin;
  for (const char c : bytes) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x80) {
      latin += c;
    } else {
      latin += static_cast<char>(0xc0 | code >> 6);
      latin += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  Binary(latin);
  Text("latin1");
  Tuple();
  Reduce();
}

void PickleWriter::Global(std::string_view module, std::string_view name) {
  const std::string line =
      absl::StrCat(absl::string_view(module.data(), module.size()), "\n", absl::string_view(name.data(), name.size()));
  std::string key = absl::StrCat("g", line);
  if (Recall(key)) return;
  absl::StrAppend(&text_, std::string(1, kGlobal), line, "\n");
  Remember(key);
}

std::string PickleWriter::TakeBefore(uint64_t bytes) {
  text_ += kBinBytes8;
  Number(bytes, 8);
  return std::exchange(text_, {});
}

void PickleWriter::IntTuple(std::span<const int64_t> values) {
  if (values.empty()) return EmptyTuple();
  if (values.size() > 3) Mark();
  for (const int64_t value : values) Int(value);
  static constexpr char kShort[] = {kTuple1, kTuple2, kTuple3};
  text_ += values.size() > 3 ? kTuple : kShort[values.size() - 1];
}

void PickleWriter::TorchSize(std::span<const int64_t> values) {
  Global("torch", "Size");
  IntTuple(values);
  text_ += kTuple1;
  Reduce();
}

std::string PickleWriter::Finish() && {
  text_ += kStop;
  return std::move(text_);
}

}  // namespace cairn
