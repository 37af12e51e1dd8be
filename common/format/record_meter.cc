#include "common/format/record_meter.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <limits>

namespace cairn {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// A record is parsed into a message and then becomes a manifest, which has the same texts and numbers again. Lists
// double their capacity while they grow.
constexpr uint64_t kTextMemory = 192;   // of a string or bytes field, in addition to twice its length
constexpr uint64_t kNumberMemory = 32;  // of an unpacked number or an unknown field
constexpr uint64_t kMessageMemory = 1024;
constexpr uint64_t kCopies = 4;  // of a packed number

constexpr int kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

// Returns the bytes that one packed number of this field takes in a message; 0 if its numbers are not packed.
uint64_t BytesOfPacked(const FieldDescriptor* field) {
  if (field == nullptr || !field->is_packable()) return 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return 8;
    default:
      return 4;
  }
}

// Returns the bytes that a number of this field always has on the wire; 0 if it is a varint.
uint64_t FixedBytes(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
    case FieldDescriptor::TYPE_DOUBLE:
      return 8;
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
    case FieldDescriptor::TYPE_FLOAT:
      return 4;
    default:
      return 0;
  }
}

}  // namespace

RecordMeter::RecordMeter(const Descriptor& record) { open_.push_back({&record, std::numeric_limits<uint64_t>::max()}); }

bool RecordMeter::Add(std::string_view bytes) {
  memory_ += bytes.size();
  while (ok_ && !bytes.empty()) {
    if (part_ == Part::kSkipped || part_ == Part::kPackedNumbers) {
      const std::string_view taken = bytes.substr(0, std::min<uint64_t>(skip_, bytes.size()));
      if (part_ == Part::kPackedNumbers) {
        // A varint ends at the byte whose highest bit is not set.
        const auto ends =
            std::count_if(taken.begin(), taken.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
        memory_ += static_cast<uint64_t>(ends) * packed_memory_;
      }
      skip_ -= taken.size();
      open_.back().left -= taken.size();
      bytes.remove_prefix(taken.size());
      if (skip_ == 0) part_ = Part::kTag;
    } else {
      // Bytes behind the end of this message belong to the message around it.
      ok_ = open_.back().left > 0 && TakeVarintByte(static_cast<uint8_t>(bytes.front()));
      bytes.remove_prefix(1);
    }
    while (ok_ && part_ == Part::kTag && bits_ == 0 && open_.size() > 1 && open_.back().left == 0) open_.pop_back();
  }
  return ok_;
}

bool RecordMeter::TakeVarintByte(uint8_t byte) {
  Open& message = open_.back();
  --message.left;
  if (bits_ > 63) return false;
  number_ |= static_cast<uint64_t>(byte & 0x7f) << bits_;
  bits_ += 7;
  if ((byte & 0x80) != 0) return true;
  bits_ = 0;
  bool ok = true;
  if (part_ == Part::kTag) {
    ok = BeginField();
  } else if (part_ == Part::kLength) {
    ok = BeginBytes();
  } else {
    part_ = Part::kTag;
  }
  number_ = 0;
  return ok;
}

bool RecordMeter::BeginField() {
  if (number_ >> 3 == 0 || number_ >> 3 > static_cast<uint64_t>(FieldDescriptor::kMaxNumber)) return false;
  field_ = static_cast<uint32_t>(number_ >> 3);
  wire_type_ = static_cast<int>(number_ & 7);
  switch (wire_type_) {
    case kVarint:
      memory_ += kNumberMemory;
      part_ = Part::kNumber;
      return true;
    case kFixed64:
    case kFixed32:
      memory_ += kNumberMemory;
      skip_ = wire_type_ == kFixed64 ? 8 : 4;
      part_ = Part::kSkipped;
      return skip_ <= open_.back().left;
    case kBytes:
      part_ = Part::kLength;
      return true;
    default:
      return false;
  }
}

bool RecordMeter::BeginBytes() {
  const Open message = open_.back();
  if (number_ > message.left) return false;
  const FieldDescriptor* const field = message.type->FindFieldByNumber(static_cast<int>(field_));
  if (field != nullptr && field->type() == FieldDescriptor::TYPE_MESSAGE) {
    memory_ += kMessageMemory;
    open_.back().left -= number_;
    open_.push_back({field->message_type(), number_});
    part_ = Part::kTag;
    return true;
  }
  skip_ = number_;
  part_ = skip_ == 0 ? Part::kTag : Part::kSkipped;
  packed_memory_ = kCopies * BytesOfPacked(field);
  if (packed_memory_ == 0) {
    // Add has already counted its length once.
    memory_ += kTextMemory + number_;
  } else if (const uint64_t each = FixedBytes(*field); each > 0) {
    memory_ += number_ / each * packed_memory_;
  } else if (skip_ > 0) {
    part_ = Part::kPackedNumbers;
  }
  return true;
}

}  // namespace cairn
