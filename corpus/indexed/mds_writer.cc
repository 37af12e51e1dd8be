#include "corpus/indexed/mds_writer.h"

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/input_path.h"
#include "corpus/io/output_file.h"

namespace cairn::corpus {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename T>
void AppendNumber(T value, std::string& out) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The entries as Python's json.dumps writes them, in the order of their names. Two more stand between these halves in
// the index.
std::string FirstEntries(const MdsWriter::Options& options) {
  const std::string dtype(IndexedDtypeName(options.dtype));
  const std::string shape = options.tokens ? absl::StrCat(":", *options.tokens) : "";
  const std::string size =
      options.tokens ? absl::StrCat(*options.tokens * IndexedDtypeBytes(options.dtype)) : std::string("null");
  return absl::StrCat("\"column_encodings\": [\"ndarray:", dtype, shape,
                      "\"], \"column_names\": [\"tokens\"], \"column_sizes\": [", size,
                      "], \"compression\": null, \"format\": \"mds\", \"hashes\": [], ");
}

std::string LastEntries(const MdsWriter::Options& options) {
  return absl::StrCat("\"size_limit\": ", options.shard_bytes, ", \"version\": 2");
}

// Appends the shape of an array of one axis, in the smallest type.
void AppendShape(uint64_t tokens, std::string& out) {
  constexpr char kOneAxis = 1 << 2;
  const int width = tokens < 1 << 8 ? 0 : tokens < 1 << 16 ? 1 : 2;
  out.push_back(static_cast<char>(kOneAxis | width));
  out.append(reinterpret_cast<const char*>(&tokens), size_t{1} << width);
}

}  // namespace

MdsWriter::MdsWriter(Options options)
    : options_(std::move(options)),
      description_(FirstEntries(options_)),
      configuration_(absl::StrCat("{", description_, LastEntries(options_), "}")) {}

absl::StatusOr<std::unique_ptr<MdsWriter>> MdsWriter::Create(Options options) {
  std::unique_ptr<MdsWriter> writer(new MdsWriter(std::move(options)));
  const std::string index = writer->options_.directory + "/index.json";
  CAIRN_ASSIGN_OR_RETURN(writer->made_, MadeDirectory::Of(index));
  if (InputStands(index)) {
    return MakeError(Reason::kOutputExists, absl::StrCat(writer->options_.directory, " has a dataset already"),
                     {{"file", index}, {"next", "Name another directory, or remove this one."}});
  }
  return writer;
}

absl::Status MdsWriter::Add(std::string_view bytes) {
  if (bytes.size() > kMostMdsSampleBytes) {
    return MakeError(Reason::kUnsupported,
                     absl::StrCat("sample ", samples_, " has ", bytes.size(), " bytes; one has at most 1 GiB"),
                     {{"next", "Give --sequence-length, so that samples are short."}});
  }
  std::string shape;
  if (!options_.tokens) AppendShape(bytes.size() / IndexedDtypeBytes(options_.dtype), shape);
  const uint64_t sample = bytes.size() + shape.size() + (options_.tokens ? 0 : sizeof(uint32_t));
  // The number of samples, and the first offset.
  const uint64_t fixed = 2 * sizeof(uint32_t) + configuration_.size();
  const uint64_t with_sample = fixed + data_.size() + sample + sizeof(uint32_t) * (ends_.size() + 1);
  if (with_sample > options_.shard_bytes && !ends_.empty()) CAIRN_RETURN_IF_ERROR(Flush());
  if (!options_.tokens) AppendNumber(static_cast<uint32_t>(shape.size() + bytes.size()), data_);
  data_.append(shape).append(bytes);
  ends_.push_back(static_cast<uint32_t>(data_.size()));
  ++samples_;
  return absl::OkStatus();
}

absl::Status MdsWriter::Flush() {
  const std::string name = absl::StrFormat("shard.%05d.mds", shards_);
  std::string head;
  AppendNumber(static_cast<uint32_t>(ends_.size()), head);
  const auto begin = static_cast<uint32_t>(sizeof(uint32_t) * (ends_.size() + 2) + configuration_.size());
  AppendNumber(begin, head);
  for (const uint32_t end : ends_) AppendNumber(begin + end, head);
  CAIRN_RETURN_IF_ERROR(Write(name, {head, configuration_, data_}));
  absl::StrAppend(&index_, shards_ == 0 ? "" : ", ", "{", description_, "\"raw_data\": {\"basename\": \"", name,
                  "\", \"bytes\": ", begin + data_.size(), ", \"hashes\": {}}, \"samples\": ", ends_.size(), ", ",
                  LastEntries(options_), ", \"zip_data\": null}");
  ++shards_;
  data_.clear();
  ends_.clear();
  return absl::OkStatus();
}

absl::Status MdsWriter::Write(const std::string& name, std::initializer_list<std::string_view> pieces) const {
  CAIRN_ASSIGN_OR_RETURN(const auto file, OutputFile::Create(absl::StrCat(options_.directory, "/", name), {}));
  for (const std::string_view piece : pieces) CAIRN_RETURN_IF_ERROR(file->Append(piece));
  return file->Commit();
}

absl::Status MdsWriter::Finish() {
  if (!ends_.empty()) CAIRN_RETURN_IF_ERROR(Flush());
  return Write("index.json", {"{\"shards\": [", index_, "], \"version\": 2}"});
}

}  // namespace cairn::corpus
