// Tells how much memory a packed record of Protocol Buffers will take, while it is unpacked piece by piece and before
// any message is built of it. A few bytes of zstd can stand for a gigabyte of empty strings.
#ifndef CAIRN_COMMON_FORMAT_RECORD_METER_H_
#define CAIRN_COMMON_FORMAT_RECORD_METER_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace google::protobuf {
class Descriptor;
}  // namespace google::protobuf

namespace cairn {

// The cost of a record is linear in its length, and the meter itself takes a few hundred bytes.
class RecordMeter {
 public:
  // `record` describes the outermost message. It must outlive the meter.
  explicit RecordMeter(const google::protobuf::Descriptor& record);

  // Takes the next bytes of the record. Returns false if no message begins with what has come; then it takes no more.
  bool Add(std::string_view bytes);

  // Returns how much memory what has come will take, in bytes: its own length, the messages, and what is made of them
  // afterwards. It is an estimate.
  uint64_t memory() const { return memory_; }

 private:
  // A message that has not ended yet. The outermost one has no end.
  struct Open {
    const google::protobuf::Descriptor* type;
    uint64_t left;
  };
  enum class Part { kTag, kNumber, kLength, kSkipped, kPackedNumbers };

  bool TakeVarintByte(uint8_t byte);
  bool BeginField();
  bool BeginBytes();

  uint64_t memory_ = 0;
  std::vector<Open> open_;
  Part part_ = Part::kTag;
  bool ok_ = true;
  // The number that is being read, and how many of its bits have come.
  uint64_t number_ = 0;
  int bits_ = 0;
  uint32_t field_ = 0;
  int wire_type_ = 0;
  uint64_t skip_ = 0;           // bytes of the field that are still to come
  uint64_t packed_memory_ = 0;  // that of one packed number
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_RECORD_METER_H_
