// Writes Python's pickle format as data: no code runs to make it.
//
// Format: CPython's Lib/pickletools.py describes every opcode.
#ifndef CAIRN_FOREIGN_WRITE_TORCH_PICKLE_WRITER_H_
#define CAIRN_FOREIGN_WRITE_TORCH_PICKLE_WRITER_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"

namespace cairn {

// A pickle is a program for Python's stack machine. Each call adds opcodes that push one value, or that take values
// from the stack. A global or text that was written before is recalled by its number, so a name in many records is
// written once.
class PickleWriter {
 public:
  // The opcodes are those of protocol 2. With protocol 4, bytes have opcodes of their own.
  explicit PickleWriter(int protocol = 2);

  void None();
  void Bool(bool value);
  void Int(int64_t value);
  // Takes an integer of any size: decimal digits, with "-" in front if it is negative.
  void Decimal(std::string_view digits);
  void Float(double value);
  void Text(std::string_view utf8);
  // Protocol 2 has no opcode for bytes; Python itself writes a call of _codecs.encode then.
  void Bytes(std::string_view bytes);
  // Only for protocol 4: begins a byte string of `bytes` bytes, which the caller itself writes to the file. Returns the
  // program up to these bytes and forgets it; later calls write what follows the bytes.
  std::string TakeBefore(uint64_t bytes);
  void Global(std::string_view module, std::string_view name);
  void EmptyTuple();
  void EmptyList();
  void EmptyDict();

  // Marks the stack. The next call of Tuple, AppendItems or SetItems takes all values above the mark.
  void Mark();
  void Tuple();        // makes the values a tuple
  void AppendItems();  // appends the values to the list below the mark
  void SetItems();     // puts the values (key, value, key, value ...) into the dict below the mark
  // Reduce and NewObject take a tuple of arguments and, below it, a callable or a class, and push the result of the
  // call.
  void Reduce();
  void NewObject();
  // Takes a state, and sets it on the object below it.
  void Build();
  // Takes a value, and pushes the object that the reader finds elsewhere by this value.
  void PersistentId();

  // Push a tuple of integers, and the same as a torch.Size.
  void IntTuple(std::span<const int64_t> values);
  void TorchSize(std::span<const int64_t> values);

  // Ends the program, which must leave one value on the stack, and returns it.
  std::string Finish() &&;

 private:
  void Number(uint64_t value, int bytes);
  void Binary(std::string_view text);
  // Adds the opcode that recalls the value remembered under `key`. Returns false if there is none.
  bool Recall(const std::string& key);
  void Remember(const std::string& key);

  const int protocol_;
  std::string text_;
  absl::flat_hash_map<std::string, uint32_t> memo_;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_TORCH_PICKLE_WRITER_H_
