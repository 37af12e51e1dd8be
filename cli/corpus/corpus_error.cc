#include "cli/corpus/corpus_error.h"

#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

const char* AdviceFor(Reason reason) {
  switch (reason) {
    case Reason::kMemoryLimit:
      return "Raise the limit that the message names, or that of the container or the process (ulimit -v, -u, -n); or "
             "let fewer threads work at the same time.";
    case Reason::kNoSpace:
      return "Free space there, or write to another place, and give the same command again.";
    case Reason::kChecksumMismatch:
    case Reason::kFileTruncated:
    case Reason::kFileMissing:
    case Reason::kManifestCorrupt:
      return "See that nothing else writes there, and that the disk is sound (dmesg); then make the file again.";
    default:
      return "See that the storage answers, then give the same command again.";
  }
}

}  // namespace

absl::Status WithCorpusAdvice(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  if (!reason.has_value() || MetadataOf(status).contains("next")) return status;
  if (*reason == Reason::kInvalidUtf8) return status;  // its advice is for bpe train
  const std::string next = NextActionOf(status);
  if (next.find("--") == std::string::npos && next.find("`cairn") == std::string::npos) return status;
  return WithMetadata(status, {{"next", AdviceFor(*reason)}});
}

int ReportCorpusError(const CommandContext& context, const absl::Status& status) {
  return ReportError(context, WithCorpusAdvice(status));
}

void RunCorpusCommand(CommandContext& context, const std::function<absl::Status()>& work) {
  const absl::Status status = WithMemory("for this command", work);
  if (!status.ok()) context.exit_status = ReportCorpusError(context, status);
}

}  // namespace cairn::cli
