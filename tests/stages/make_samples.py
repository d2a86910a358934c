"""Writes the sample documents: ``python -m tests.stages.make_samples`` from the repository's root.

Small documents in Korean and English, of every format that is indexed, and in ``broken/`` two that cannot be: a PDF
that was cut short, and one that needs a password. All companies, people and rules in them are invented; no file was
taken from anywhere else. The PDFs name a Korean font and do not embed it: a viewer shows them in one of its own.

It needs nothing but Python. The same run gives the same bytes, so a difference in git is a difference made here.
"""

from email.message import EmailMessage
from pathlib import Path

from tests.stages.hwp_writer import hwp
from tests.stages.office_writer import docx, epub, hwpx, odt, pptx, xlsx
from tests.stages.pdf_writer import pdf

FOLDER = Path(__file__).resolve().parents[2] / "samples"

REFUND = [
    "# 환불 규정",
    "## 환불 신청 기간",
    "환불은 상품을 받은 날부터 7일까지 신청할 수 있습니다. "
    "상품이 설명과 다르거나 파손된 경우에는 30일까지 신청할 수 있습니다.",
    "## 배송비",
    "단순 변심으로 반품할 때의 왕복 배송비 6,000원은 고객이 부담하고, 상품의 결함 때문이라면 회사가 부담합니다.",
    "## 환불 방법",
    "카드로 결제한 금액은 반품이 도착한 뒤 3영업일 안에 승인이 취소됩니다. 계좌 이체는 같은 기간 안에 입금됩니다.",
]

LEAVE = [
    "연차 휴가 규정",
    "1년 동안 80% 이상 출근한 직원에게 15일의 유급 휴가를 준다. 2년마다 하루씩 더하며 최대 25일이다.",
    "입사한 지 1년이 안 된 직원은 한 달을 개근할 때마다 하루의 휴가를 얻는다.",
    "휴가는 사흘 전까지 인사 시스템에서 신청하고, 팀장이 승인한다. 남은 휴가는 다음 해 3월까지 쓸 수 있다.",
]

REMOTE = [
    "재택근무 지침",
    "재택근무는 일주일에 이틀까지 할 수 있으며, 전날 오후 5시까지 팀 일정표에 적는다.",
    "집에서 일할 때에도 핵심 근무 시간인 오전 10시부터 오후 4시까지는 메신저에 접속해 있어야 한다.",
    "회사 자료는 회사가 지급한 노트북에서만 열고, 공용 와이파이를 쓸 때에는 반드시 VPN으로 접속한다.",
]

PRIVACY = [
    [
        "개인정보 처리방침",
        "",
        "회사는 회원 가입과 주문 처리를 위해 이름, 전자우편 주소, 전화번호,",
        "배송지 주소를 수집합니다. 주민등록번호는 수집하지 않습니다.",
    ],
    [
        "보관 기간",
        "",
        "회원이 탈퇴하면 개인정보를 30일 안에 파기합니다. 다만 전자상거래법에",
        "따라 계약과 결제에 관한 기록은 5년 동안 보관합니다.",
    ],
    [
        "정보주체의 권리",
        "",
        "회원은 언제든지 자신의 개인정보를 열람하고 고치거나 지우도록 요구할 수",
        "있습니다. 요구는 privacy@example.com 으로 받으며 열흘 안에 답합니다.",
    ],
]

INCIDENT_SLIDES = [
    ["장애 대응 절차", "서비스 운영팀 교육 자료"],
    ["첫 10분", "담당자는 알림을 받으면 5분 안에 응답한다.", "상황실 채널을 열고 심각도를 정한다."],
    ["고객 공지", "심각도 1등급은 30분마다 상태 페이지에 진행 상황을 알린다.", "원인을 추측해서 적지 않는다."],
    ["사후 검토", "복구 뒤 사흘 안에 회고를 열고, 사람이 아니라 과정을 고친다."],
]

MINUTES = """2025년 9월 정기 회의록

일시: 2025년 9월 3일 오후 2시, 3층 회의실
참석: 김민지, 박서준, 이하늘

1. 새 물류 창고
 평택 창고 임대 계약을 10월 1일부터 2년으로 하기로 했다. 월 임대료는 1,200만 원이다.
2. 서버 증설
 검색 서버를 두 대 더 사기로 했다. 박서준이 견적을 9월 12일까지 받는다.
3. 다음 회의는 10월 8일이다.
"""

FAQ = """<!DOCTYPE html>
<html lang="ko"><head><meta charset="euc-kr"><title>자주 묻는 질문</title></head><body>
<h1>자주 묻는 질문</h1>
<h2>비밀번호를 잊었습니다</h2>
<p>로그인 화면의 &lsquo;비밀번호 찾기&rsquo;를 누르면 재설정 링크를 전자우편으로 보냅니다.
링크는 1시간 동안만 쓸 수 있습니다.</p>
<h2>영수증은 어디에서 받나요?</h2>
<p>주문 내역에서 현금영수증과 세금계산서를 내려받을 수 있습니다.</p>
<h2>회원 등급은 어떻게 정해지나요?</h2>
<table><tr><th>등급</th><th>1년 구매 금액</th><th>적립</th></tr>
<tr><td>실버</td><td>10만 원 이상</td><td>1%</td></tr><tr><td>골드</td><td>50만 원 이상</td><td>3%</td></tr></table>
</body></html>
"""

SHIPPING = [
    "# 배송 안내",
    "오후 2시 전에 결제한 주문은 그날 보내며, 보통 다음 날 도착합니다. 제주와 섬 지역은 이틀이 더 걸립니다.",
    "5만 원 이상 주문하면 배송비가 없습니다. 그보다 적으면 3,000원입니다.",
]

RUNBOOK = """# Operations runbook

## Restarting the search service

Drain the node first: `drainctl node-7 --wait`. Then restart the unit with `systemctl restart search` and watch the
queue depth fall below 100 before you put the node back into rotation. Never restart two nodes at the same time.

## Disk almost full

When a data disk passes 85 %, delete the oldest snapshots with `snapctl prune --keep 5`. If that frees less than 10 GB,
page the storage team: the write-ahead log is probably being held back by a stuck replication slot.

## Rotating the signing keys

Keys are rotated every 90 days. Create the new key, publish it, wait 24 hours so that every client has fetched it, and
only then start signing with it. Revoke the old key after another 24 hours.

## Backups

A full backup of the database runs every Sunday at 02:00 UTC, an incremental one every hour. To restore the database
from a backup, stop the writers, run `restorectl --latest --target standby`, check the row counts, and promote the
standby. Restores are rehearsed on the first Monday of each month; the last one took 47 minutes for 800 GB.
"""

SECURITY = [
    [
        "Security incident policy",
        "",
        "Anyone who suspects a breach reports it within one hour to",
        "security@example.com or by phone, at any time of day.",
    ],
    [
        "Containment",
        "",
        "The incident lead may disconnect any system without asking. Evidence",
        "is preserved first: disks are imaged before machines are rebuilt.",
    ],
    [
        "Notification",
        "",
        "Regulators are notified within 72 hours when personal data is affected,",
        "and customers as soon as we can tell them what to do.",
    ],
]

RELEASE_NOTES = """Release 4.2 (2025-08-20)

- Search understands Korean and English in one query.
- Uploads are resumed after a lost connection instead of starting over.
- The mobile app shows the delivery route on a map.
- Fixed: coupons could be used twice when two tabs were open.
- Python 3.10 is no longer supported.
"""

INVENTORY = """sku,name,warehouse,stock,reorder_at
A-1001,Ceramic mug,Pyeongtaek,420,100
A-1002,Steel water bottle,Pyeongtaek,35,80
B-2001,Canvas tote bag,Incheon,1200,300
B-2002,Raincoat for children,Incheon,12,50
C-3001,Desk lamp with dimmer,Busan,77,40
"""

HANDBOOK = {
    "Expenses": "<p>Travel is booked through the travel desk. Meals are reimbursed up to 45 euros a day; keep the "
    "receipts and hand them in within 14 days.</p>",
    "Probation": "<p>The probation period lasts six months. Either side may end the contract during it with two "
    "weeks&#8217; notice.</p>",
    "Learning": "<p>Everyone has a training budget of 1,500 euros a year and five days to use it.</p>",
}

ONBOARDING = [
    "Onboarding checklist",
    "Day one: collect the laptop and the badge at reception, and set up two-factor authentication with your phone.",
    "First week: read the security policy, meet your buddy, and ship one small change to production.",
    "신입 사원은 첫날 안내 데스크에서 노트북과 출입증을 받습니다.",
]


def mail() -> bytes:
    """A customer's mail in EUC-KR, as older mail programs write it."""
    message = EmailMessage()
    message["From"] = "han@example.com"
    message["To"] = "help@example.com"
    message["Subject"] = "주문 취소 문의"
    message["Date"] = "Tue, 02 Sep 2025 09:30:00 +0900"
    message.set_content(
        "안녕하세요.\n어제 주문한 무선 청소기를 취소하고 싶습니다. 아직 발송되지 않았다면 결제를 취소해 주세요.\n"
        "주문 번호는 20250901-7788입니다.\n감사합니다. 한지우 드림\n",
        charset="euc-kr",
        cte="8bit",
    )
    return message.as_bytes()


def rtf(paragraphs: list[str]) -> bytes:
    """Rich text; what is beyond ASCII as numbers, as every program writes it."""
    body = "\\par\n".join(
        "".join(c if c.isascii() else f"\\u{ord(c) - 65536 if ord(c) > 32767 else ord(c)}?" for c in text)
        for text in paragraphs
    )
    return ("{\\rtf1\\ansi\\deff0{\\fonttbl{\\f0 Arial;}}\\f0\\fs24\n" + body + "\\par\n}\n").encode("ascii")


def documents() -> dict[str, bytes]:
    """Every sample by its path below ``samples``."""
    prices = [["상품", "월 요금", "저장 공간"], ["기본", "9900", "100 GB"], ["프리미엄", "19900", "1 TB"]]
    discounts = [["조건", "할인"], ["1년치를 한 번에 결제", "{0}0.2"], ["학생", "{0}0.5"], ["비영리 단체", "{0}0.3"]]
    return {
        "환불-규정.docx": docx(
            REFUND, [["사유", "배송비"], ["단순 변심", "고객 부담"], ["상품 결함", "회사 부담"]], "환불 규정"
        ),
        "연차-휴가-규정.hwp": hwp(LEAVE, [["근속", "휴가"], ["1년", "15일"], ["3년", "16일"]]),
        "재택근무-지침.hwpx": hwpx(REMOTE, [["요일", "가능"], ["월요일", "아니요"], ["수요일", "예"]], "재택근무 지침"),
        "개인정보-처리방침.pdf": pdf(PRIVACY, "개인정보 처리방침"),
        "장애-대응-절차.pptx": pptx(
            INCIDENT_SLIDES, {3: "상태 페이지 문구는 홍보팀이 미리 써 둔 틀을 쓴다."}, "장애 대응 절차"
        ),
        "요금표.xlsx": xlsx({"요금": prices, "할인": discounts}, ["0%"]),
        "회의록-2025-09.txt": MINUTES.encode("cp949"),
        "자주-묻는-질문.html": FAQ.encode("euc-kr"),
        "고객-문의.eml": mail(),
        "배송-안내.odt": odt(SHIPPING, [["지역", "배송일"], ["육지", "1일"], ["제주", "3일"]]),
        "operations-runbook.md": RUNBOOK.encode(),
        "security-incident-policy.pdf": pdf(SECURITY, "Security incident policy"),
        "release-notes.txt": RELEASE_NOTES.encode(),
        "inventory.csv": INVENTORY.encode(),
        "employee-handbook.epub": epub(HANDBOOK, "Employee handbook"),
        "onboarding.rtf": rtf(ONBOARDING),
        "broken/cut-short.pdf": pdf(SECURITY, "Cut short")[:1500],
        "broken/password-protected.pdf": pdf([["This page can be read with the password only."]], "Secret", "secret"),
    }


if __name__ == "__main__":
    for name, content in documents().items():
        path = FOLDER / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
