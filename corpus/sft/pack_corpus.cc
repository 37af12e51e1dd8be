#include "corpus/sft/pack_corpus.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/bad_lines.h"
#include "corpus/io/input_part.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/open_source.h"
#include "corpus/io/ordered_work.h"
#include "corpus/io/output_file.h"
#include "corpus/io/output_place.h"
#include "corpus/preprocess/line_batches.h"
#include "corpus/sft/packed_parquet.h"
#include "corpus/sft/sample_file.h"

namespace cairn::corpus {
namespace {

constexpr uint64_t kBatchesPerWorker = 3;
constexpr uint32_t kTrained = PackedParquet::kTrained;

struct EncodedSamples {
  size_t file = 0;
  uint64_t input_bytes = 0;
  std::vector<uint32_t> tokens;  // of all samples; the highest bit says that it is trained on
  std::vector<uint32_t> sizes;   // tokens of each sample
  BadLines bad;
};

// The samples of the corpus in the order of the input. Only lengths are in memory.
struct Samples {
  SampleFile tokens;
  std::vector<uint32_t> lengths;  // predicted tokens
  std::vector<uint64_t> firsts;   // places in `tokens`
  uint64_t end = 0;
};

absl::Status Check(const PackOptions& options) {
  const auto bad = [](std::string what, std::string next) {
    return MakeError(Reason::kBadRequest, std::move(what), {{"next", std::move(next)}});
  };
  if (options.workers < 1) return bad(absl::StrCat(options.workers, " workers"), "Give at least one.");
  if (options.pack_size < 1 || options.pack_size > kMostPackSize) {
    return bad(absl::StrCat("a pack of ", options.pack_size, " tokens is not between 1 and ", kMostPackSize),
               "Give the length that the model is trained with.");
  }
  if (options.pad_multiple < 1 || options.pad_multiple > options.pack_size) {
    return bad(absl::StrCat("no multiple of ", options.pad_multiple, " tokens fits in a pack of ", options.pack_size),
               "Give a multiple from 1 to the size of a pack.");
  }
  return absl::OkStatus();
}

absl::Status EncodeBatch(const PackOptions& options, const LineBatch& batch, const std::string& file,
                         SampleEncoder& encoder, EncodedSamples& out) {
  uint64_t line_number = batch.first_line;
  Sample sample;
  return ForEachLine(batch.text(), [&](std::string_view line) {
    absl::Status status = encoder.Encode(line, sample);
    if (status.ok()) {
      for (size_t i = 0; i < sample.ids.size(); ++i) {
        out.tokens.push_back(sample.ids[i] | (sample.trained[i] ? kTrained : 0));
      }
      out.sizes.push_back(static_cast<uint32_t>(sample.ids.size()));
    } else if (options.skip_bad_lines && HasReason(status, Reason::kBadJsonLine)) {
      out.bad.Add(line_number, status);
      status = absl::OkStatus();
    } else {
      status = Annotate(status, absl::StrCat(file, ": line ", line_number),
                        {{"file", file}, {"line", std::to_string(line_number)}});
    }
    ++line_number;
    return status;
  });
}

// Returns how many tokens the sample has in the corpus; nothing if it is left out.
std::optional<size_t> StoredSize(const PackOptions& options, size_t size) {
  const size_t predicted = size - 1;
  if (options.pad_multiple == 1) return predicted > options.pack_size ? std::nullopt : std::optional(size);
  const size_t most = options.pack_size / options.pad_multiple * options.pad_multiple;
  const size_t filled = (predicted + options.pad_multiple - 1) / options.pad_multiple * options.pad_multiple;
  return std::min(most, filled) + 1;
}

absl::Status AddSamples(const PackOptions& options, const EncodedSamples& batch, Samples& samples, PackReport& report) {
  const uint32_t* tokens = batch.tokens.data();
  for (const uint32_t size : batch.sizes) {
    const std::optional<size_t> stored = StoredSize(options, size);
    if (!stored) {
      ++report.too_long;
    } else {
      const std::vector<uint32_t> padding(*stored - std::min<size_t>(*stored, size), options.pad_id);
      const size_t kept = *stored - padding.size();
      CAIRN_RETURN_IF_ERROR(samples.tokens.Append(tokens, kept));
      CAIRN_RETURN_IF_ERROR(samples.tokens.Append(padding.data(), padding.size()));
      samples.firsts.push_back(samples.end);
      samples.lengths.push_back(static_cast<uint32_t>(*stored - 1));
      samples.end += *stored;
    }
    tokens += size;
  }
  return absl::OkStatus();
}

absl::Status ReadSamples(const PackOptions& options, OutputFile* bad_lines, Samples& samples, PackReport& report) {
  std::vector<std::unique_ptr<SampleEncoder>> encoders;
  for (int i = 0; i < options.workers; ++i) {
    CAIRN_ASSIGN_OR_RETURN(auto encoder, options.new_encoder());
    encoders.push_back(std::move(encoder));
  }
  LineBatches::Options reading = {
      .batch_bytes = options.batch_bytes, .max_line = options.max_line, .skip_long = options.skip_bad_lines};
  reading.source = {.direct = false,
                    .stop = options.interrupted,
                    .file_bytes = options.file_bytes,
                    .columns = options.columns,
                    .table_readers = TableReadersFor(options.workers)};
  LineBatches batches(WholeInputs(options.inputs), reading);
  PackProgress progress;
  OrderedSteps<LineBatch, EncodedSamples> steps;
  steps.next = [&](LineBatch& batch) -> absl::StatusOr<bool> {
    if (options.interrupted != nullptr && options.interrupted->load(std::memory_order_relaxed)) {
      return MakeError(Reason::kInterrupted, "interrupted; nothing was written");
    }
    return batches.Next(batch);
  };
  steps.cost = [&](const LineBatch& batch) { return std::max<uint64_t>(batch.size, options.batch_bytes); };
  steps.work = [&](int thread, LineBatch& batch) -> absl::StatusOr<EncodedSamples> {
    EncodedSamples out{batch.file, batch.size, {}, {}, {}};
    if (batch.too_long) out.bad.Add(batch.first_line, batches.TooLong());
    CAIRN_RETURN_IF_ERROR(
        EncodeBatch(options, batch, options.inputs[batch.file], *encoders[static_cast<size_t>(thread)], out));
    batch.buffer.Reserve(options.batch_bytes, 0);
    return out;
  };
  steps.deliver = [&](EncodedSamples batch) -> absl::Status {
    CAIRN_RETURN_IF_ERROR(AddSamples(options, batch, samples, report));
    report.input_bytes += batch.input_bytes;
    if (batch.bad.size() > 0) {
      report.bad_lines += batch.bad.size();
      CAIRN_RETURN_IF_ERROR(batch.bad.Write(options.inputs[batch.file], *bad_lines));
    }
    progress.samples = samples.lengths.size();
    progress.tokens = samples.end;
    progress.bad_lines = report.bad_lines;
    if (options.progress) options.progress(progress);
    return absl::OkStatus();
  };
  const auto window = kBatchesPerWorker * static_cast<uint64_t>(options.workers) * options.batch_bytes;
  return OrderedWork<LineBatch, EncodedSamples>(options.workers, window, std::move(steps)).Run();
}

absl::Status WritePacks(const PackOptions& options, const Packing& packing, Samples& samples, PackedParquet& parquet,
                        PackReport& report) {
  PackProgress progress = {.samples = samples.lengths.size(), .tokens = samples.end, .bad_lines = report.bad_lines};
  std::vector<uint32_t> tokens;
  for (size_t pack = 0; pack < packing.packs(); ++pack) {
    if (options.interrupted != nullptr && options.interrupted->load(std::memory_order_relaxed)) {
      return MakeError(Reason::kInterrupted, "interrupted; nothing was written");
    }
    CAIRN_RETURN_IF_ERROR(parquet.BeginPack());
    for (uint32_t i = packing.firsts[pack]; i < packing.firsts[pack + 1]; ++i) {
      const uint32_t sample = packing.samples[i];
      tokens.resize(samples.lengths[sample] + size_t{1});
      CAIRN_RETURN_IF_ERROR(samples.tokens.Read(samples.firsts[sample], tokens));
      parquet.AddSample(tokens);
      report.trained += static_cast<uint64_t>(
          std::count_if(tokens.begin() + 1, tokens.end(), [](uint32_t token) { return (token & kTrained) != 0; }));
    }
    progress.packs = pack + 1;
    if (options.progress) options.progress(progress);
  }
  return parquet.Finish();
}

// Rounds as Python's round(value, 2).
double Rounded(double value) { return std::strtod(absl::StrFormat("%.2f", value).c_str(), nullptr); }

std::string Metadata(const PackOptions& options, const Packing& packing, PackReport& report) {
  const auto packs = static_cast<double>(packing.packs());
  report.efficiency =
      Rounded(static_cast<double>(packing.tokens) / packs / static_cast<double>(options.pack_size) * 100);
  const nlohmann::ordered_json json = {{"dataset_max_seqlen", packing.longest_sample},
                                       {"max_samples_per_bin", packing.most_samples},
                                       {"packing_factor", Rounded(static_cast<double>(packing.samples.size()) / packs)},
                                       {"packing_efficiency", report.efficiency},
                                       {"pack_size", options.pack_size},
                                       {"min_packed_seqlen", packing.shortest_pack}};
  return absl::StrCat("[", json.dump(), "]\n");
}

}  // namespace

std::string PackedPath(const std::string& prefix) { return prefix + ".idx.parquet"; }
std::string PackMetadataPath(const std::string& prefix) { return prefix + "_metadata.json"; }
std::string PackBadLinesPath(const std::string& prefix) { return prefix + "_bad_lines.log"; }

absl::StatusOr<PackReport> PackCorpus(const PackOptions& options) {
  CAIRN_RETURN_IF_ERROR(Check(options));
  const std::string path = PackedPath(options.output_prefix);
  CAIRN_ASSIGN_OR_RETURN(const MadeDirectory directory, MadeDirectory::Of(path));
  CAIRN_ASSIGN_OR_RETURN(auto output, OutputFile::Create(path, {.stop = options.interrupted}));
  CAIRN_ASSIGN_OR_RETURN(auto metadata, OutputFile::Create(PackMetadataPath(options.output_prefix), {}));
  std::unique_ptr<OutputFile> bad_lines;
  if (options.skip_bad_lines) {
    CAIRN_ASSIGN_OR_RETURN(bad_lines, OutputFile::Create(PackBadLinesPath(options.output_prefix), {}));
  }
  // What is missing is told before hours of reading.
  CAIRN_ASSIGN_OR_RETURN(const auto parquet, PackedParquet::Start(*output, options.interrupted));
  PackReport report;
  Samples samples{SampleFile(ScratchDirectoryFor(path)), {}, {}, 0};
  CAIRN_RETURN_IF_ERROR(ReadSamples(options, bad_lines.get(), samples, report));
  CAIRN_ASSIGN_OR_RETURN(const Packing packing, WithMemory("for the order of the samples, 40 bytes each", [&] {
                           return PackSamples(samples.lengths, options.pack_size, options.order, options.seed,
                                              options.interrupted);
                         }));
  CAIRN_RETURN_IF_ERROR(
      WithMemory("for a row group of packs", [&] { return WritePacks(options, packing, samples, *parquet, report); }));
  CAIRN_RETURN_IF_ERROR(metadata->Append(Metadata(options, packing, report)));
  report.samples = samples.lengths.size();
  report.tokens = samples.end;
  report.packs = packing.packs();

  // All are whole before the first gets its name; an older set loses its packs first, so that no mixture is read.
  CAIRN_RETURN_IF_ERROR(output->Finish());
  CAIRN_RETURN_IF_ERROR(metadata->Finish());
  if (bad_lines != nullptr) CAIRN_RETURN_IF_ERROR(bad_lines->Finish());
  // A report of an earlier run would speak of other lines.
  CAIRN_RETURN_IF_ERROR(RemoveReplaced({{output->path(), PackBadLinesPath(options.output_prefix)}}));
  absl::Status status = metadata->Commit();
  if (status.ok() && bad_lines != nullptr) status = bad_lines->Commit();
  if (status.ok()) status = output->Commit();
  if (!status.ok()) {
    const std::vector<std::string> done = {PackMetadataPath(options.output_prefix),
                                           PackBadLinesPath(options.output_prefix)};
    RemoveReplaced(std::span(done).first(options.skip_bad_lines ? 2 : 1)).IgnoreError();  // the failure is told already
    return status;
  }
  return report;
}

}  // namespace cairn::corpus
