// The copies of objects that all ranks of a load get. They are written once for all ranks and not into each rank's
// part, because a checkpoint may have as many such objects as it had ranks.
#ifndef CAIRN_PLANNER_LOAD_SHARED_OBJECTS_H_
#define CAIRN_PLANNER_LOAD_SHARED_OBJECTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/format/manifest.h"
#include "planner/layout/layout_set.h"

namespace cairn {

// Not thread-safe. Both arguments must outlive it.
class SharedObjectCopies {
 public:
  SharedObjectCopies(const Manifest& source, const LayoutSet& targets);

  // `object` is a number in the manifest. Returns false for an object that only its own rank gets.
  bool Has(uint32_t object) const { return number_[object] != kOwn; }

  // Some bytes of an object in the buffer of a round.
  struct Piece {
    uint32_t round;
    uint32_t reader;  // index of the rank that reads it
    uint64_t source_offset;
    uint64_t begin;  // in the object
    uint64_t bytes;
  };
  // Adds a piece of an object for which Has returns true.
  void Add(uint32_t object, const Piece& piece);

  // Returns the field ReadPlan.shared_objects, serialized; empty if there are none. To be called once.
  std::string Write();

 private:
  static constexpr uint32_t kOwn = UINT32_MAX;
  struct Copy {
    uint32_t object;  // its number in SharedObjects
    Piece piece;
  };

  std::string WriteGroups() const;
  bool IsWhole(const Copy& copy) const { return copy.piece.bytes == bytes_[copy.object]; }
  uint64_t ReaderOf(const Copy& copy) const;
  // Writes, from `begin` on, the whole objects that lie one after the other in a round. Returns the index of the next
  // copy.
  size_t WriteRun(size_t begin, std::string& out) const;
  void WritePiece(const Copy& copy, std::string& out) const;

  const Manifest& source_;
  const LayoutSet& targets_;
  std::vector<uint32_t> number_;  // by number in the manifest: the one in SharedObjects, or kOwn
  std::vector<uint64_t> bytes_;   // by number in SharedObjects
  std::vector<Copy> copies_;
};

}  // namespace cairn

#endif  // CAIRN_PLANNER_LOAD_SHARED_OBJECTS_H_
