// Divides inputs into parts of about equal size, so that several processes can work on one corpus.
#ifndef CAIRN_CORPUS_IO_INPUT_PART_H_
#define CAIRN_CORPUS_IO_INPUT_PART_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "corpus/io/byte_source.h"
#include "corpus/io/ranged_input.h"

namespace cairn::corpus {

// An input, or some bytes of a plain one. Each input alone is one of these, so a name may be given in its place.
struct InputPiece {
  InputPiece() = default;
  InputPiece(std::string whole) : path(std::move(whole)) {}  // NOLINT(google-explicit-constructor)
  InputPiece(const char* whole) : path(whole) {}             // NOLINT(google-explicit-constructor)

  std::string path;
  uint64_t begin = 0;
  uint64_t end = UINT64_MAX;  // the largest number: where the input ends

  bool whole() const { return begin == 0 && end == UINT64_MAX; }
  // Names it in errors, where lines and offsets count from its begin: "a.jsonl (from byte 4096)".
  std::string name() const;
};

std::vector<InputPiece> WholeInputs(const std::vector<std::string>& paths);
std::vector<std::string> PathsOf(const std::vector<InputPiece>& pieces);

// Reads a piece as OpenSource reads an input. INPUT_UNREADABLE: also the input ends before the piece does.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenPiece(const InputPiece& piece, const SourceOptions& options);

// The part `number`, from 1, of `of` parts.
struct InputPart {
  uint32_t number = 1;
  uint32_t of = 1;
};
inline constexpr uint32_t kMostParts = 10000;

// Reads "3/16". BAD_REQUEST.
absl::StatusOr<InputPart> ParsePart(const std::string& text);

// Returns where a piece may begin: the largest or smallest such place near `offset`, which lies within the input. It
// depends on the input and the offset alone, and a larger offset has no smaller place.
using PlaceToCut = std::function<absl::StatusOr<uint64_t>(const RangedInput& input, uint64_t offset)>;

// Returns the first offset from `offset` on where a line begins. Lines end at `separator`; if that is LF and
// `returns`, also at CR and CR LF.
absl::StatusOr<uint64_t> FirstLineFrom(const RangedInput& input, uint64_t offset, char separator, bool returns);

struct PartOfInputs {
  std::vector<InputPiece> pieces;  // in the order of the inputs
  std::vector<size_t> numbers;     // of the inputs of the pieces, from 0
  uint64_t bytes = 0;              // of the files of the pieces, as they are on disk
  std::string all;                 // a digest of the names and sizes of all inputs
};

// The parts have about equal bytes of the inputs in their order, and together all, each once. Plain inputs are cut
// where `cut` says; if it is null, and for all others, an input belongs to the part in which it begins. BAD_REQUEST: an
// input can be read only once. INPUT_UNREADABLE; errors of `cut`.
absl::StatusOr<PartOfInputs> FindPart(const std::vector<std::string>& paths, InputPart part, const PlaceToCut& cut);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_INPUT_PART_H_
