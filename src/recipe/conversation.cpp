#include "recipe/conversation.h"

#include <array>
#include <utility>

namespace deepinfer::recipe {
namespace {

template <class Value, size_t N>
using Names = std::array<std::pair<Value, std::string_view>, N>;

constexpr Names<Role, 5> kRoles = {{{Role::system, "system"},
                                    {Role::user, "user"},
                                    {Role::assistant, "assistant"},
                                    {Role::tool, "tool"},
                                    {Role::latest_reminder, "latest_reminder"}}};
constexpr Names<ImageKind, 3> kImageKinds = {
    {{ImageKind::url, "url"}, {ImageKind::data_url, "data_url"}, {ImageKind::bytes, "bytes"}}};
constexpr Names<ImageDetail, 4> kDetails = {{{ImageDetail::low, "low"},
                                             {ImageDetail::high, "high"},
                                             {ImageDetail::original, "original"},
                                             {ImageDetail::automatic, "auto"}}};
constexpr Names<ToolChoice, 3> kChoices = {{{ToolChoice::automatic, "auto"},
                                            {ToolChoice::none, "none"},
                                            {ToolChoice::required, "required"}}};
constexpr Names<Effort, 4> kEfforts = {
    {{Effort::low, "low"}, {Effort::high, "high"}, {Effort::xhigh, "xhigh"}, {Effort::max, "max"}}};
constexpr Names<FormatKind, 4> kFormats = {{{FormatKind::text, "text"},
                                            {FormatKind::json_object, "json_object"},
                                            {FormatKind::json_schema, "json_schema"},
                                            {FormatKind::regex, "regex"}}};

template <class Value, size_t N>
std::string_view name_in(const Names<Value, N>& names, Value value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return {};
}

}  // namespace

std::string_view role_name(Role role) { return name_in(kRoles, role); }
std::string_view image_kind_name(ImageKind kind) { return name_in(kImageKinds, kind); }
std::string_view image_detail_name(ImageDetail detail) { return name_in(kDetails, detail); }
std::string_view tool_choice_name(ToolChoice choice) { return name_in(kChoices, choice); }
std::string_view effort_name(Effort effort) { return name_in(kEfforts, effort); }
std::string_view format_name(FormatKind kind) { return name_in(kFormats, kind); }

std::optional<Role> role_from_name(std::string_view name) {
  for (const auto& [role, known] : kRoles) {
    if (known == name) return role;
  }
  return std::nullopt;
}

void Content::append_image(Image image) {
  image.offset = text.size();
  images.push_back(std::move(image));
}

void Content::append_content(Content more) {
  for (Image& image : more.images) {
    image.offset += text.size();
    images.push_back(std::move(image));
  }
  text += more.text;
}

std::string Content::flattened(std::string_view mark) const {
  std::string out;
  size_t done = 0;
  for (const Image& image : images) {
    out.append(text, done, image.offset - done);
    out += mark;
    done = image.offset;
  }
  return out.append(text, done);
}

Content Content::from_flattened(std::string_view text, std::vector<Image> images,
                                std::string_view mark) {
  Content content;
  for (Image& image : images) {
    const size_t at = text.find(mark);
    if (at == std::string_view::npos) break;
    content.append(text.substr(0, at));
    content.append_image(std::move(image));
    text.remove_prefix(at + mark.size());
  }
  content.append(text);
  return content;
}

}  // namespace deepinfer::recipe
