#include "corpus/io/input_part.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/open_source.h"

namespace cairn::corpus {
namespace {

constexpr size_t kLookBytes = 64 << 10;

__extension__ using Uint128 = unsigned __int128;

// Ends after a number of bytes.
class LimitedSource final : public ByteSource {
 public:
  LimitedSource(std::unique_ptr<ByteSource> source, std::string path, uint64_t bytes)
      : source_(std::move(source)), path_(std::move(path)), left_(bytes) {}

  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    if (left_ == 0) return 0;
    CAIRN_ASSIGN_OR_RETURN(const size_t count, source_->Read(buffer, size));
    if (count == 0) {
      return MakeError(Reason::kInputUnreadable, absl::StrCat(path_, " became shorter while parts of it were read"),
                       {{"file", path_}});
    }
    const auto taken = static_cast<size_t>(std::min<uint64_t>(count, left_));
    left_ -= taken;
    return taken;
  }
  bool direct() const override { return source_->direct(); }

 private:
  const std::unique_ptr<ByteSource> source_;
  const std::string path_;
  uint64_t left_;
};

// Returns where a piece begins that would begin at `offset` if it could.
absl::StatusOr<uint64_t> PlaceFor(const RangedInput& input, uint64_t offset, const PlaceToCut& cut) {
  if (offset == 0) return 0;
  if (offset >= input.bytes()) return input.bytes();
  return cut(input, offset);
}

}  // namespace

std::string InputPiece::name() const { return begin == 0 ? path : absl::StrCat(path, " (from byte ", begin, ")"); }

std::vector<InputPiece> WholeInputs(const std::vector<std::string>& paths) { return {paths.begin(), paths.end()}; }

std::vector<std::string> PathsOf(const std::vector<InputPiece>& pieces) {
  std::vector<std::string> paths;
  paths.reserve(pieces.size());
  for (const InputPiece& piece : pieces) paths.push_back(piece.path);
  return paths;
}

absl::StatusOr<std::unique_ptr<ByteSource>> OpenPiece(const InputPiece& piece, const SourceOptions& options) {
  if (piece.whole()) return OpenSource(piece.path, options);
  CAIRN_ASSIGN_OR_RETURN(auto source, OpenPlainSource(piece.path, piece.begin, piece.end, options));
  if (piece.end == UINT64_MAX) return source;
  return std::make_unique<LimitedSource>(std::move(source), piece.path, piece.end - piece.begin);
}

absl::StatusOr<InputPart> ParsePart(const std::string& text) {
  InputPart part;
  const size_t slash = text.find('/');
  if (slash != std::string::npos && absl::SimpleAtoi(text.substr(0, slash), &part.number) &&
      absl::SimpleAtoi(text.substr(slash + 1), &part.of) && part.number >= 1 && part.number <= part.of &&
      part.of <= kMostParts) {
    return part;
  }
  return MakeError(Reason::kBadRequest,
                   absl::StrCat("--part is I/N with I from 1 to N, and N up to ", kMostParts, ", not \"", text, "\""),
                   {{"next", "Give, for example, --part 1/16 to the first of 16 commands."}});
}

absl::StatusOr<uint64_t> FirstLineFrom(const RangedInput& input, uint64_t offset, char separator, bool returns) {
  if (offset == 0) return 0;
  std::string look(kLookBytes, '\0');
  bool returned = false;  // the byte before was a CR
  for (uint64_t at = offset - 1;;) {
    CAIRN_ASSIGN_OR_RETURN(const size_t count, input.Read(at, look.data(), look.size()));
    if (count == 0) return at;
    for (size_t i = 0; i < count; ++i) {
      if (look[i] == separator) return at + i + 1;
      if (returned) return at + i;
      returned = returns && look[i] == '\r';
    }
    at += count;
  }
}

absl::StatusOr<PartOfInputs> FindPart(const std::vector<std::string>& paths, InputPart part, const PlaceToCut& cut) {
  PartOfInputs found;
  Digester digester;
  std::vector<uint64_t> sizes;
  uint64_t total = 0;
  for (const std::string& path : paths) {
    uint64_t bytes = 0;
    ObjectStores* const stores = StoresOf(path);
    if (const auto known = stores == nullptr ? std::nullopt : stores->Recall(path)) {
      bytes = known->bytes;
    } else {
      CAIRN_ASSIGN_OR_RETURN(const RangedInput input, RangedInput::Open(path));  // refuses pipes
      bytes = input.bytes();
    }
    digester.Add(path).Add(bytes);
    sizes.push_back(bytes);
    total += bytes;
  }
  found.all = DigestHex(digester.Finish());
  const auto edge = [&](uint64_t number) { return static_cast<uint64_t>(Uint128{total} * number / part.of); };
  const uint64_t low = edge(part.number - 1), high = edge(part.number);
  uint64_t start = 0;  // of this input in all
  for (size_t i = 0; i < paths.size(); start += sizes[i++]) {
    if (cut == nullptr || sizes[i] == 0 || !IsReadAsItIs(paths[i])) {
      // What begins where all ends is in the last part.
      const bool here = start >= low && (start < high || (start == high && part.number == part.of));
      if (!here) continue;
      found.pieces.emplace_back(paths[i]);
      found.numbers.push_back(i);
      found.bytes += sizes[i];
      continue;
    }
    if (start >= high || start + sizes[i] <= low) continue;
    CAIRN_ASSIGN_OR_RETURN(const RangedInput input, RangedInput::Open(paths[i]));
    InputPiece piece(paths[i]);
    CAIRN_ASSIGN_OR_RETURN(piece.begin, PlaceFor(input, low > start ? low - start : 0, cut));
    CAIRN_ASSIGN_OR_RETURN(piece.end, PlaceFor(input, std::min(high - start, sizes[i]), cut));
    if (piece.begin >= piece.end) continue;
    found.bytes += piece.end - piece.begin;
    if (piece.begin == 0 && piece.end == sizes[i]) piece.end = UINT64_MAX;
    found.pieces.push_back(std::move(piece));
    found.numbers.push_back(i);
  }
  return found;
}

}  // namespace cairn::corpus
