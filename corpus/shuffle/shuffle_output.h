// The output of a shuffle: one file or several parts, with header lines, perhaps compressed; hidden until all is whole.
#ifndef CAIRN_CORPUS_SHUFFLE_SHUFFLE_OUTPUT_H_
#define CAIRN_CORPUS_SHUFFLE_SHUFFLE_OUTPUT_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/io/byte_source.h"
#include "corpus/io/output_file.h"
#include "corpus/shuffle/line_multiset.h"

namespace cairn::corpus {

// Compressed output is a chain of gzip members or zstd frames of this many bytes of text each (the last of a part may
// be shorter): they depend on the text alone, are compressed side by side, and any reader takes them as one stream.
inline constexpr size_t kFrameBytes = 1 << 20;

struct ShuffleOutputOptions {
  std::string path;
  // At most one of the three is not 0. Bytes count before compression, with separators and header; a part holds more
  // only if one line alone does.
  uint64_t split_lines = 0;
  uint64_t split_bytes = 0;
  uint64_t split_files = 0;
  Compression compression = Compression::kNone;
  int threads = 1;  // that compress
  char separator = '\n';
  std::string header;  // begins every part; with its separators
  bool direct = true;
  // Empty: hidden files get fresh names. Else they are `<prefix>.<part>` and survive when `keep` is set.
  std::string partial_prefix;
};

// `data-00003.jsonl.gz` for part 3 of `data.jsonl.gz`: the number goes before the endings, which readers look at.
std::string PartPath(const std::string& path, uint64_t part);

// For one thread. Until Commit has succeeded nothing stands under the output's name; the destructor removes the hidden
// files unless Keep was called. Errors: NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR.
class ShuffleOutput {
 public:
  static absl::StatusOr<std::unique_ptr<ShuffleOutput>> Create(ShuffleOutputOptions options);
  // Goes on where Checkpoint stood. Also FILE_TRUNCATED, MANIFEST_CORRUPT: the hidden files are not what they were.
  static absl::StatusOr<std::unique_ptr<ShuffleOutput>> Resume(ShuffleOutputOptions options,
                                                               const nlohmann::json& checkpoint);
  // Whether the hidden files that a checkpoint speaks of are there. Throws what nlohmann::json does.
  static bool CanResume(const ShuffleOutputOptions& options, const nlohmann::json& checkpoint);
  // Removes the hidden files of an older run with this prefix.
  static void RemovePartials(const ShuffleOutputOptions& options);
  ~ShuffleOutput();
  ShuffleOutput(const ShuffleOutput&) = delete;
  ShuffleOutput& operator=(const ShuffleOutput&) = delete;

  // What split_files divides; to be called before the first line.
  void SetTotalLines(uint64_t lines) { total_lines_ = lines; }

  absl::Status Line(std::string_view line);
  // A line in pieces; its length is known before.
  absl::Status BeginLongLine(uint64_t length);
  absl::Status LongLinePiece(std::string_view piece);
  absl::Status EndLongLine();

  // Makes what was written so far durable and says how to go on from here.
  absl::StatusOr<nlohmann::json> Checkpoint();
  // All parts are complete and synced, still hidden.
  absl::Status Finish();
  // Gives all parts their names and removes further parts, numbered on from the last, that a longer output left.
  absl::Status Commit();
  void Keep();

  const LineMultiset& lines() const { return lines_; }
  // After Finish.
  uint64_t file_bytes() const { return file_bytes_; }
  std::vector<std::string> paths() const;
  bool direct() const { return direct_; }

 private:
  struct Part {
    std::string partial;
    std::string path;
  };

  explicit ShuffleOutput(ShuffleOutputOptions options);
  bool Splits() const { return options_.split_lines + options_.split_bytes + options_.split_files > 0; }
  OutputFile::Options FileOptions(uint64_t part) const;
  absl::Status PlaceLine(uint64_t length);
  absl::Status OpenPart();
  absl::Status ClosePart();
  absl::Status Write(std::string_view bytes);
  absl::Status WriteFrames();

  const ShuffleOutputOptions options_;
  uint64_t total_lines_ = 0;
  LineMultiset lines_;
  uint64_t long_hash_ = 0;
  uint64_t long_length_ = 0;
  std::unique_ptr<OutputFile> file_;  // the open part
  uint64_t part_lines_ = 0;
  uint64_t part_bytes_ = 0;
  std::string frames_;       // text not yet compressed
  std::vector<Part> parts_;  // the closed ones
  uint64_t file_bytes_ = 0;
  bool direct_ = true;
  bool committed_ = false;
  bool keep_ = false;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_SHUFFLE_OUTPUT_H_
