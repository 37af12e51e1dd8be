// Reads and writes protobuf's wire format without message objects. Plans hold millions of small numbers, and building
// an object for each would cost more than everything else. The encoding: protobuf.dev/programming-guides/encoding.
#ifndef CAIRN_COMMON_FORMAT_WIRE_H_
#define CAIRN_COMMON_FORMAT_WIRE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn {

// Reads a message field by field. It never reads beyond the message's bytes. After a fault ok() is false and it reads
// no more.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes)
      : at_(reinterpret_cast<const uint8_t*>(bytes.data())), end_(at_ + bytes.size()) {}

  bool ok() const { return ok_; }
  bool AtEnd() const { return at_ == end_; }

  // Returns the next field's number, or 0 at the end or after a fault. The field's value is then in bytes() if
  // is_bytes(), else in number().
  uint32_t NextField() {
    if (!ok_ || at_ == end_) return 0;
    const uint64_t tag = Varint();
    if (!ok_ || tag >> 3 == 0 || tag >> 3 > 536870911) return Fail();
    is_bytes_ = false;
    switch (tag & 7) {
      case 0:
        number_ = Varint();
        break;
      case 1:
        number_ = Fixed(8);
        break;
      case 2: {
        const uint64_t size = Varint();
        if (!ok_ || size > static_cast<uint64_t>(end_ - at_)) return Fail();
        bytes_ = {reinterpret_cast<const char*>(at_), static_cast<size_t>(size)};
        at_ += size;
        is_bytes_ = true;
        break;
      }
      case 5:
        number_ = Fixed(4);
        break;
      default:
        return Fail();
    }
    return ok_ ? static_cast<uint32_t>(tag >> 3) : 0;
  }
  bool is_bytes() const { return is_bytes_; }
  uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }

  uint64_t Varint() {
    if (at_ != end_ && *at_ < 0x80) return *at_++;
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ != end_; shift += 7) {
      const uint8_t byte = *at_++;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }

 private:
  uint32_t Fail() {
    ok_ = false;
    return 0;
  }
  uint64_t Fixed(int size) {
    if (end_ - at_ < size) return Fail();
    uint64_t value = 0;
    for (int i = 0; i < size; ++i) value |= static_cast<uint64_t>(*at_++) << (8 * i);
    return value;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
  bool is_bytes_ = false;
  uint64_t number_ = 0;
  std::string_view bytes_;
};

// Appends the values of a repeated number field, packed or not, to `values`. Returns false if they are no varints.
template <typename Values>
bool AppendNumbers(const WireReader& field, Values& values) {
  using Value = typename Values::value_type;
  if (!field.is_bytes()) {
    values.push_back(static_cast<Value>(field.number()));
    return true;
  }
  WireReader packed(field.bytes());
  while (!packed.AtEnd() && packed.ok()) values.push_back(static_cast<Value>(packed.Varint()));
  return packed.ok();
}

class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(out) {}

  static int VarintBytes(uint64_t value) { return (63 - __builtin_clzll(value | 1)) / 7 + 1; }

  void Varint(uint64_t value) {
    while (value >= 0x80) {
      out_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    out_.push_back(static_cast<char>(value));
  }
  // Writes a field, unless it is 0, as proto3 does. Field numbers must be below 16.
  void Number(uint32_t field, uint64_t value) {
    if (value == 0) return;
    out_.push_back(static_cast<char>(field << 3));
    Varint(value);
  }
  void Fixed32(uint32_t field, uint32_t value) {
    if (value == 0) return;
    out_.push_back(static_cast<char>(field << 3 | 5));
    for (int i = 0; i < 4; ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
  }
  void Bytes(uint32_t field, std::string_view value) {
    out_.push_back(static_cast<char>(field << 3 | 2));
    Varint(value.size());
    out_.append(value);
  }
  void String(uint32_t field, std::string_view value) {
    if (!value.empty()) Bytes(field, value);
  }
  template <typename Values>
  void Packed(uint32_t field, const Values& values) {
    if (values.empty()) return;
    size_t size = 0;
    for (const auto value : values) size += static_cast<size_t>(VarintBytes(static_cast<uint64_t>(value)));
    out_.push_back(static_cast<char>(field << 3 | 2));
    Varint(size);
    for (const auto value : values) Varint(static_cast<uint64_t>(value));
  }
  template <typename Values>
  void PackedFixed32(uint32_t field, const Values& values) {
    if (values.empty()) return;
    out_.push_back(static_cast<char>(field << 3 | 2));
    Varint(values.size() * 4);
    for (const uint32_t value : values) {
      for (int i = 0; i < 4; ++i) out_.push_back(static_cast<char>(value >> (8 * i)));
    }
  }

 private:
  std::string& out_;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_WIRE_H_
