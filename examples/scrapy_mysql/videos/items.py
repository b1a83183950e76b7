from dataclasses import dataclass, field


@dataclass
class Video:
    url: str
    channel: str
    title: str
    file_urls: list[str] = field(default_factory=list)
    files: list[dict[str, object]] = field(default_factory=list)
