#include "corpus/sft/chat_renderer.h"

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

constexpr char kProgram[] =
#include "corpus/sft/chat_renderer_text.inc"
    ;

constexpr size_t kMostBytes = size_t{2} << 30;  // of a rendered conversation; its process has no more memory

}  // namespace

absl::StatusOr<std::unique_ptr<ChatRenderer>> ChatRenderer::Start(const ChatFiles& files,
                                                                  const std::atomic<bool>* stop) {
  PythonProcess::Options options;
  options.program = kProgram;
  options.takes_frames = true;
  options.path = files.name;
  options.name = absl::StrCat("the process that renders the chat template of ", files.name);
  options.task = "renders chat templates";
  options.package = "jinja2";
  options.advice =
      "Signal 24 means that one conversation took more than 10 seconds of processor time: then do not use the "
      "template.";
  options.stop = stop;
  CAIRN_ASSIGN_OR_RETURN(auto process, PythonProcess::Start(std::move(options)));
  const nlohmann::json given = {{"tokenizer_config.json", files.tokenizer_config},
                                {"special_tokens_map.json", files.special_tokens_map},
                                {"chat_template.jinja", files.chat_template}};
  CAIRN_RETURN_IF_ERROR(process->SendFrame('O', given.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  CAIRN_ASSIGN_OR_RETURN(const PythonProcess::Frame frame, process->ReceiveFrame());
  if (frame.kind == 'E') return process->ReceiveFailure(frame);
  if (frame.kind != 'O' || frame.length != 0) return process->NoFrame();
  return std::unique_ptr<ChatRenderer>(new ChatRenderer(std::move(process)));
}

absl::Status ChatRenderer::Render(std::string_view line, RenderedChat& chat) {
  CAIRN_RETURN_IF_ERROR(process_->SendFrame('L', line));
  CAIRN_ASSIGN_OR_RETURN(const PythonProcess::Frame frame, process_->ReceiveFrame());
  if (frame.kind == 'E') return process_->ReceiveFailure(frame);
  if (frame.kind != 'R' && frame.kind != 'B') return process_->NoFrame();
  CAIRN_ASSIGN_OR_RETURN(const std::string content, process_->ReceiveContent(frame, kMostBytes));
  if (frame.kind == 'B') return MakeError(Reason::kBadJsonLine, content);
  return ParseRenderedChat(content, chat);
}

absl::Status ParseRenderedChat(std::string_view content, RenderedChat& chat) {
  const auto bad = [] { return MakeError(Reason::kInputUnreadable, "the chat template gave what is no conversation"); };
  const auto take = [&](uint32_t& number) {
    if (content.size() < sizeof(number)) return false;
    std::memcpy(&number, content.data(), sizeof(number));
    content.remove_prefix(sizeof(number));
    return true;
  };
  uint32_t answers = 0;
  if (!take(answers) || content.size() / 8 < answers) return bad();
  chat.answers.clear();
  for (uint32_t i = 0; i < answers; ++i) {
    uint32_t begin = 0, end = 0;
    if (!take(begin) || !take(end)) return bad();
    chat.answers.push_back({begin, end});
  }
  for (const ByteRange& answer : chat.answers) {
    if (answer.begin > answer.end || answer.end > content.size()) return bad();
  }
  chat.text.assign(content);
  return absl::OkStatus();
}

}  // namespace cairn::corpus
