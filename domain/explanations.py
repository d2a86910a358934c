"""What a failure means to the person whose document it is, in Korean and in English.

Here and not in the commands or the API, so that everyone who shows a failure says the same. Whether it will be
tried again is not part of the sentence: that is the attempt's outcome, and the policy's to change.
"""

from dataclasses import dataclass

from domain.failures import FailureType


@dataclass(frozen=True, slots=True)
class Explanation:
    """One sentence or two for a user: what happened and, where there is something, what he can do."""

    korean: str
    english: str


OF_REASON: dict[str, Explanation] = {
    "SOURCE_MISSING": Explanation(
        "저장소에서 원본 파일을 찾을 수 없습니다. 파일을 다시 올려 주세요.",
        "The original file is no longer in the store. Please upload it again.",
    ),
    "SOURCE_CHANGED": Explanation(
        "원본 파일이 업로드한 뒤에 바뀌었거나 끝까지 읽히지 않았습니다.",
        "The original file changed after it was uploaded, or could not be read to its end.",
    ),
    "SOURCE_REFUSED": Explanation(
        "이 위치의 파일은 읽을 수 있도록 허용되어 있지 않습니다. 파일을 다시 올려 주세요.",
        "Files at this place may not be read here. Please upload the file itself.",
    ),
    "ACCESS_REFUSED": Explanation(
        "저장소가 파일 접근을 거부했습니다. 관리자가 접근 권한을 확인해야 합니다.",
        "The store refused access to the file. An administrator has to check the permissions.",
    ),
    "PASSWORD_REQUIRED": Explanation(
        "암호로 보호된 문서입니다. 암호를 해제한 뒤 다시 올려 주세요.",
        "The document is protected by a password. Remove the password and upload it again.",
    ),
    "CORRUPT": Explanation(
        "파일이 손상되어 열 수 없습니다. 원본을 확인한 뒤 다시 올려 주세요.",
        "The file is damaged and cannot be opened. Check the original and upload it again.",
    ),
    "NO_TEXT": Explanation(
        "문서에서 글자를 찾을 수 없습니다. 스캔한 이미지라면 문자 인식(OCR)을 한 뒤 올려 주세요.",
        "There is no text in the document. If it is a scan, run text recognition (OCR) and upload the result.",
    ),
    "EMPTY": Explanation("빈 파일입니다.", "The file is empty."),
    "ENCODING_UNKNOWN": Explanation(
        "글자 인코딩을 알 수 없습니다. UTF-8로 저장한 뒤 다시 올려 주세요.",
        "The encoding of the text is not known. Save it as UTF-8 and upload it again.",
    ),
    "TOO_LARGE": Explanation(
        "파일이 너무 큽니다. 나누어 올려 주세요.",
        "The file is too large. Please split it.",
    ),
    "TOO_MANY_CHUNKS": Explanation(
        "문서가 너무 깁니다. 나누어 올려 주세요.",
        "The document is too long. Please split it.",
    ),
    "ARCHIVE_UNSAFE": Explanation(
        "압축을 풀면 지나치게 커지거나 안전하지 않은 파일이라 열지 않았습니다.",
        "The file was not opened: what is packed in it is unsafe, or far larger than it claims.",
    ),
    "UNSUPPORTED_TYPE": Explanation(
        "지원하지 않는 파일 형식입니다.",
        "This type of file is not supported.",
    ),
    "RATE_LIMITED": Explanation(
        "임베딩 서비스의 요청 한도를 넘었습니다.",
        "The embedding service takes no more requests for the moment.",
    ),
    "PROVIDER_AUTH": Explanation(
        "임베딩 서비스가 인증을 거부했습니다. 관리자가 키를 확인해야 합니다.",
        "The embedding service refused the credentials. An administrator has to check the key.",
    ),
    "MODEL_UNAVAILABLE": Explanation(
        "이 문서에 정해진 임베딩 모델을 쓸 수 없습니다. 관리자가 설정을 확인해야 합니다.",
        "The embedding model of this document cannot be used. An administrator has to check the settings.",
    ),
    "LEASE_EXPIRED": Explanation(
        "처리하던 작업자가 응답하지 않게 되었습니다.",
        "The worker that processed the document stopped answering.",
    ),
    "WORKER_KILLED": Explanation(
        "문서를 처리하던 중에 작업자가 강제로 종료되었습니다.",
        "The worker was killed while it processed the document.",
    ),
    "TIME_LIMIT": Explanation(
        "문서를 처리하는 데 시간이 너무 오래 걸려 중단했습니다.",
        "Processing the document took too long and was stopped.",
    ),
    "DATABASE": Explanation(
        "데이터베이스에 연결할 수 없었습니다.",
        "The database could not be reached.",
    ),
}

OF_TYPE: dict[str, Explanation] = {
    FailureType.STORAGE_UNAVAILABLE: Explanation(
        "저장소에 연결할 수 없었습니다.",
        "The store could not be reached.",
    ),
    FailureType.DOCUMENT_CONTENT_INVALID: Explanation(
        "문서의 내용을 읽을 수 없습니다. 파일을 확인해 주세요.",
        "The content of the document cannot be read. Please check the file.",
    ),
    FailureType.EMBEDDING_PROVIDER_UNAVAILABLE: Explanation(
        "임베딩 서비스에 연결할 수 없었습니다.",
        "The embedding service could not be reached.",
    ),
    FailureType.EMBEDDING_RESULT_INVALID: Explanation(
        "임베딩 서비스가 쓸 수 없는 결과를 돌려주었습니다. 관리자가 설정을 확인해야 합니다.",
        "The embedding service returned an unusable result. An administrator has to check the settings.",
    ),
    FailureType.INDEXING_STATE_INCONSISTENT: Explanation(
        "색인 상태가 맞지 않아 중단했습니다. 관리자가 확인해야 합니다.",
        "Indexing was stopped because its state did not add up. An administrator has to look into it.",
    ),
    FailureType.WORKER_INTERNAL_ERROR: Explanation(
        "문서를 처리하던 중에 내부 오류가 발생했습니다.",
        "An internal error occurred while the document was processed.",
    ),
}


def explain(failure_type: str, failure_reason: str | None) -> Explanation:
    """The words for a failure: those of its reason, or of its type where the reason has none of its own."""
    if failure_reason in OF_REASON:
        return OF_REASON[failure_reason]
    return OF_TYPE.get(failure_type, OF_TYPE[FailureType.WORKER_INTERNAL_ERROR])
