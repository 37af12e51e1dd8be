// Estimates how much memory a compressed protobuf record will take once it is parsed. It reads the record piece by
// piece while it is decompressed, before any message is built. This is needed because a few bytes of zstd can expand to
// a gigabyte of empty strings.
#ifndef CAIRN_COMMON_FORMAT_RECORD_METER_H_
#define CAIRN_COMMON_FORMAT_RECORD_METER_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace google::protobuf {
class Descriptor;
}  // namespace google::protobuf

namespace cairn {

// Takes time linear in the record's length, and a few hundred bytes of memory. Not thread-safe.
class RecordMeter {
 public:
  // `record` describes the outermost message. It must outlive the meter.
  explicit RecordMeter(const google::protobuf::Descriptor& record);

  // Reads the next bytes of the record. Returns false, and ignores later bytes, if no message begins so.
  bool Add(std::string_view bytes);

  // Returns an estimate, in bytes, of the memory for the bytes so far: the bytes themselves, the messages, and the
  // structures that are built from the messages.
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
  // The varint that is being read, and how many of its bits are known.
  uint64_t number_ = 0;
  int bits_ = 0;
  uint32_t field_ = 0;
  int wire_type_ = 0;
  uint64_t skip_ = 0;           // bytes of the field that are still to come
  uint64_t packed_memory_ = 0;  // memory of one packed number
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_RECORD_METER_H_
